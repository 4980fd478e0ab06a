terraform {
  required_version = ">= 1.11"
  required_providers {
    botscreen = {
      source = "botscreen/botscreen"
    }
  }
}

variable "nomad_token" {
  type      = string
  sensitive = true
  default   = null # NOMAD_TOKEN
}

variable "agents" {
  type    = set(string)
  default = ["clerk", "scout", "tester"]
}

# Screens are declared and not started until somebody sets this to "running".
variable "desired_state" {
  type    = string
  default = "running"
}

provider "botscreen" {
  secret_id   = var.nomad_token
  plan_checks = "warn" # "error": a plan that cannot be placed is a failed plan
}

# Two sandboxes may host a desktop, in this order. The host may not.
resource "botscreen_placement" "sandboxed" {
  name            = "sandboxed"
  isolation       = "auto"
  isolation_order = ["docker", "apptainer"]
  datacenters     = ["*"]

  constraints = [
    { attribute = "$${attr.kernel.version}", operator = "version", value = ">= 5.15" },
  ]
}

data "botscreen_placement_check" "sandboxed" {
  placement = botscreen_placement.sandboxed.ref
}

check "desktops_can_be_hosted" {
  assert {
    condition     = data.botscreen_placement_check.sandboxed.can_host
    error_message = data.botscreen_placement_check.sandboxed.refusal
  }
}

# "refuse" makes the plan stop and ask; the other two answers are keep and switch.
resource "botscreen_sandbox_image" "desk" {
  name              = "desk"
  reference         = var.image
  on_default_change = "refuse"
}

variable "image" {
  type        = string
  description = "The desktop image of this team."
}

check "image_is_current" {
  assert {
    condition     = !botscreen_sandbox_image.desk.update_available
    error_message = "A newer default desktop image is offered: ${botscreen_sandbox_image.desk.offered_digest}."
  }
}

resource "botscreen_profile" "desk" {
  for_each = var.agents

  name       = each.key
  geometry   = "1920x1080"
  memory     = 4096
  memory_max = 8192
  idle_stop  = "2h"
  watch      = "holder"

  secret_env = {
    OPENAI_API_KEY = "agents/openai#api_key" # read by the task, never by Terraform
  }
}

resource "botscreen_screen" "agent" {
  for_each = var.agents

  name          = each.key
  profile       = botscreen_profile.desk[each.key].ref
  placement     = botscreen_placement.sandboxed.ref
  image         = botscreen_sandbox_image.desk.image
  desired_state = var.desired_state

  restart_triggers = {
    week = "2026-W48"
  }

  timeouts = {
    create = "10m"
    update = "10m"
  }
}
