# Nested maps and lists in config are where driver-side interpolation has been lost or doubled.
job "bots-interp" {
  type = "service"
  group "desk" {
    network {
      port "relay" {
        to = 6080
      }
    }
    meta {
      lane = "blue"
    }
    task "bot-a" {
      driver = "botscreen"
      config {
        profile   = "bot-${NOMAD_ALLOC_INDEX}"
        isolation = "docker"
        image     = "registry.example:5000/desk:1.4@sha256:0000000000000000000000000000000000000000000000000000000000000000"
        docker {
          # Quoted names are refused in a block, here as in Nomad.
          labels = {
            lane               = "${NOMAD_META_lane}"
            "com.example/node" = "${attr.unique.hostname}"
          }
          volumes = ["${NOMAD_TASK_DIR}/extra:/extra:ro"]
        }
        browser {
          args = ["--user-agent=a b \"c\"", "--lang=${NOMAD_META_lane}"]
        }
      }
      resources {
        memory = 800
      }
    }
  }
}
