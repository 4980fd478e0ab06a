# One desktop for one bot, on the raw host.
#
# The node's operator must allow that in the agent's configuration:
#
#   plugin "nomad-driver-botscreen" {
#     config {
#       allow_unsandboxed_host = true
#     }
#   }
#
# `botscreen agent -dev` does so by default.

job "desktop" {
  group "desk" {
    # A desktop that ends is started again, at most twice in ten minutes.
    restart {
      attempts = 2
      interval = "10m"
      delay    = "5s"
      mode     = "fail"
    }

    task "researcher" {
      driver = "botscreen"

      config {
        profile   = "researcher"
        isolation = "host"
      }

      # What an idle desktop and a browser with a few tabs need.
      resources {
        cpu    = 500
        memory = 1536
      }

      kill_timeout = "10s"
    }
  }
}
