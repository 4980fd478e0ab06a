# One desktop for one bot, in a docker container.
#
# The node needs an engine, and an image with Xvnc and Xfce: `make image` builds one. This job names none, so that the
# node's operator decides; `image` in the config below would.
#
#   plugin "nomad-driver-botscreen" {
#     config {
#       default_image = "botscreen-desktop:dev"
#     }
#   }

job "docker-desktop" {
  group "desk" {
    restart {
      attempts = 2
      interval = "10m"
      delay    = "5s"
      mode     = "fail"
    }

    task "clerk" {
      driver = "botscreen"

      config {
        profile   = "clerk"
        isolation = "docker"

        docker {
          # A browser needs "bridge"; containers on it do not reach each other.
          network_mode = "none"
          # What the task keeps in its own directory, seen inside. Nothing else of the node can be bound.
          volumes = ["local:/task"]
        }
      }

      # The container's limits.
      resources {
        cpu    = 500
        memory = 1536
      }

      kill_timeout = "10s"
    }
  }
}
