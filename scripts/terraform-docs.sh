#!/usr/bin/env bash
# Writes docs/terraform from the provider's own schema, or with -check says whether it is
# as the schema. Needs terraform on PATH and the Go module proxy.
set -euo pipefail
cd "$(dirname "$0")/.."
tool=github.com/hashicorp/terraform-plugin-docs/cmd/tfplugindocs@v0.25.0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$work/tf" "$work/provider/docs" "$work/provider/templates" "$work/bin"
CGO_ENABLED=0 go build -o "$work/bin/" ./cmd/terraform-provider-botscreen
cat >"$work/cli.rc" <<-EOF
	provider_installation {
	  dev_overrides { "registry.terraform.io/botscreen/botscreen" = "$work/bin" }
	  direct {}
	}
EOF
cat >"$work/tf/main.tf" <<-'EOF'
	terraform {
	  required_providers { botscreen = { source = "botscreen/botscreen" } }
	}
EOF
(cd "$work/tf" && TF_CLI_CONFIG_FILE=$work/cli.rc CHECKPOINT_DISABLE=1 terraform providers schema -json 2>/dev/null) |
	sed 's|registry.terraform.io/botscreen/botscreen|registry.terraform.io/hashicorp/botscreen|' |
	go run ./scripts/terraform-schema >"$work/schema.json"
go run "$tool" generate --provider-dir "$work/provider" --provider-name botscreen --providers-schema "$work/schema.json" >"$work/log" 2>&1 ||
	{ cat "$work/log" >&2; exit 1; }
if [ "${1:-}" = -check ]; then
	diff -r "$work/provider/docs" docs/terraform || { echo "docs/terraform is not as the schema: run \`make terraform-docs\`" >&2; exit 1; }
	exit 0
fi
rm -rf docs/terraform
cp -r "$work/provider/docs" docs/terraform
