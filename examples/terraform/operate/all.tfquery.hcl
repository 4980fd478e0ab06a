# terraform query -generate-config-out=found.tf writes import blocks for all of this.
list "botscreen_profile" "all" {
  provider = botscreen
}

list "botscreen_screen" "stopped" {
  provider = botscreen
  config {
    status = "stopped"
  }
}
