# What Terraform 1.14 and later can do besides: actions, and a query that finds what is there.
terraform {
  required_version = ">= 1.14"
  required_providers {
    botscreen = {
      source = "botscreen/botscreen"
    }
  }
}

provider "botscreen" {} # NOMAD_ADDR and NOMAD_TOKEN say where and who

variable "release" {
  type    = string
  default = "1"
}

resource "botscreen_profile" "scout" {
  name   = "scout"
  memory = 1024
}

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

# By hand: terraform apply -invoke action.botscreen_screen_restart.scout
action "botscreen_screen_restart" "scout" {
  config {
    screen = botscreen_screen.scout.id
    reason = "another release of the bot"
  }
}

action "botscreen_tickets_revoke" "scout" {
  config {
    screen = botscreen_screen.scout.id
  }
}

# Another release of the bot starts its desktop anew, and ends the links to the old one.
resource "terraform_data" "bot" {
  input = var.release

  lifecycle {
    action_trigger {
      events  = [after_update]
      actions = [action.botscreen_tickets_revoke.scout, action.botscreen_screen_restart.scout]
    }
  }
}
