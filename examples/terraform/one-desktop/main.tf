terraform {
  required_version = ">= 1.11"
  required_providers {
    botscreen = {
      source = "botscreen/botscreen"
    }
  }
}

provider "botscreen" {} # NOMAD_ADDR and NOMAD_TOKEN say where and who

variable "geometry" {
  type    = string
  default = "1440x900"
}

# The bot.
resource "botscreen_profile" "scout" {
  name      = "scout"
  geometry  = var.geometry
  memory    = 1024
  idle_stop = "45m"
}

# The embedded agent's node is this machine, which has no sandbox unless docker runs. The
# host has to be allowed by name, here and by the node's operator.
resource "botscreen_placement" "host" {
  name                   = "host"
  isolation              = "host"
  allow_unsandboxed_host = true
}

resource "botscreen_screen" "scout" {
  name      = "scout"
  profile   = botscreen_profile.scout.ref
  placement = botscreen_placement.host.ref
}

output "scout" {
  value = "${botscreen_screen.scout.status} on ${botscreen_screen.scout.node_name}"
}
