terraform {
  required_providers {
    botscreen = {
      source = "botscreen/botscreen"
    }
  }
}

variable "name" { type = string }
variable "geometry" { type = string }
variable "memory" { type = number }
variable "placement" { type = string }
variable "desired_state" { type = string }

resource "botscreen_profile" "this" {
  name     = var.name
  geometry = var.geometry
  memory   = var.memory
}

resource "botscreen_screen" "this" {
  name          = var.name
  profile       = botscreen_profile.this.ref
  placement     = var.placement
  desired_state = var.desired_state
}

output "status" { value = botscreen_screen.this.status }
