terraform {
  required_version = ">= 1.11"
  required_providers {
    botscreen = {
      source = "botscreen/botscreen"
    }
  }
}

provider "botscreen" {}

variable "bots" {
  description = "Each bot and what is its own."
  type = map(object({
    geometry = optional(string, "1440x900")
    memory   = optional(number, 2048)
  }))
  default = {
    clerk  = {}
    scout  = { geometry = "1920x1080" }
    tester = { memory = 1024 }
  }
}

variable "desired_state" {
  type    = string
  default = "stopped"
}

resource "botscreen_placement" "fleet" {
  name = "fleet"
}

module "bot" {
  source   = "./modules/bot"
  for_each = var.bots

  name          = each.key
  geometry      = each.value.geometry
  memory        = each.value.memory
  placement     = botscreen_placement.fleet.ref
  desired_state = var.desired_state
}

output "status" {
  value = { for name, bot in module.bot : name => bot.status }
}
