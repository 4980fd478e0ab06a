# One desktop for one bot, in apptainer: without a daemon and without any privilege.
#
# Images are SIF files, sandbox directories, or references of a registry. Files and directories lie in a directory that
# the node's operator names; this job takes the node's default.
#
#   plugin "nomad-driver-botscreen" {
#     config {
#       default_image = "desktop.sif"
#       apptainer {
#         image_dirs = ["/srv/images"]
#       }
#     }
#   }

job "apptainer-desktop" {
  group "desk" {
    restart {
      attempts = 2
      interval = "10m"
      delay    = "5s"
      mode     = "fail"
    }

    task "archivist" {
      driver = "botscreen"

      config {
        profile   = "archivist"
        isolation = "apptainer"

        apptainer {
          # /tmp is memory of the task's own.
          tmpfs_mb = 512
          binds    = ["local:/task:ro"]
        }
      }

      resources {
        cpu    = 500
        memory = 1536
      }

      kill_timeout = "10s"
    }
  }
}
