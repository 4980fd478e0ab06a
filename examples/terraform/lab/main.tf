terraform {
  required_version = ">= 1.11"
  required_providers {
    botscreen = {
      source = "botscreen/botscreen"
    }
  }
}

provider "botscreen" {}

# The lab machine has no sandbox. Without the opt-in this file does not even validate.
resource "botscreen_placement" "lab_host" {
  name                   = "lab-host"
  isolation              = "host"
  allow_unsandboxed_host = true
}

resource "botscreen_profile" "plain" {
  name               = "plain"
  idle_stop          = "0s" # never
  memory             = 512
  min_free_memory_mb = 512
}

# A canary on a hand-picked digest.
resource "botscreen_sandbox_image" "canary" {
  name      = "canary"
  reference = "registry.example/team/desktop:2026.12"
  digest    = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
}

resource "botscreen_screen" "plain" {
  name      = "plain"
  profile   = botscreen_profile.plain.ref
  placement = botscreen_placement.lab_host.ref
}

# A smoke test after apply, with a ticket that lives only for this run.
ephemeral "botscreen_viewer_ticket" "smoke" {
  screen = botscreen_screen.plain.id
}

resource "terraform_data" "smoke" {
  triggers_replace = [botscreen_screen.plain.job_version]

  provisioner "local-exec" {
    command     = "test -n \"$TICKET\""
    environment = { TICKET = ephemeral.botscreen_viewer_ticket.smoke.ticket }
  }
}
