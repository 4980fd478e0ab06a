// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

var _ = add(
	row{id: "T-JWT", f: logins},
	row{id: "T-JWT policy", f: loginPolicy, acl: true},
)

func jwtBlock(token string) string {
	return fmt.Sprintf("provider \"botscreen\" {\n  variable_prefix = \"PREFIX\"\n  auth_jwt = {\n    auth_method = \"ci-PREFIX\"\n    login_token = %q\n  }\n}\n", token)
}

// logins: a login happens on first use and once for each provider, its token is used from
// then on, and a refused one is told in words. The agent's own answer is left out here.
func logins(b *bench) {
	const login = "PUT /v1/acl"
	whole := b.token
	b.token = "" // an environment's token is not looked at
	b.proxy.hook(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Path == "/v1/acl/token/self" && b.agent.kind == "embedded": // it has one token and does not tell of it
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(api.ACLToken{Name: "ci"})
			return true
		case r.URL.Path != "/v1/acl/login":
			return false
		}
		var req api.ACLLoginRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.AuthMethodName != "ci-"+b.prefix || r.Header.Get("X-Nomad-Token") != "" {
			b.Errorf("login %v with token %t, %v", req.AuthMethodName, r.Header.Get("X-Nomad-Token") != "", err)
		}
		if req.LoginToken != "CANARY-jwt" {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "Permission denied")
			return true
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(api.ACLToken{SecretID: whole})
		return true
	})
	b.config(jwtBlock("CANARY-jwt") + profileOf())
	b.proxy.counts()
	b.must("validate", "-no-color")
	if n := b.proxy.counts()[login]; n != 0 {
		b.Error("a login without a use")
	}
	b.settle()
	if n := b.proxy.counts()[login]; n == 0 || n > 3 { // a provider process for the plan, one for the apply, one for the next plan
		b.Errorf("%d logins for an apply and a plan", n)
	}
	b.config(jwtBlock("CANARY-wrong") + profileOf())
	o := b.run("plan", "-no-color")
	b.fails(o, "Nomad refused the login", "Cannot log in with the authentication method", "State was not changed.")
	if strings.Contains(o.raw, "CANARY") || b.holds("terraform.tfstate", "CANARY") {
		b.Error("the token is shown or kept")
	}
	b.config(strings.Replace(jwtBlock("CANARY-jwt"), "auth_jwt", "secret_id = \"x\"\n  auth_jwt", 1) + profileOf())
	b.fails(b.run("validate", "-no-color"), "secret_id", "auth_jwt")
	b.config(jwtBlock("CANARY-jwt") + profileOf())
	b.destroy()
}

// loginPolicy: a real Nomad verifies the token's signature and gives what a binding rule says.
func loginPolicy(b *bench) {
	c := b.agent.api
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		b.Fatal(err)
	}
	method := "ci-" + b.prefix
	if _, _, err := c.ACLAuthMethods().Create(&api.ACLAuthMethod{
		Name: method, Type: "JWT", TokenLocality: "local", MaxTokenTTL: 10 * time.Minute,
		Config: &api.ACLAuthMethodConfig{
			JWTValidationPubKeys: []string{string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))},
			BoundAudiences:       []string{"botscreen"}, SigningAlgs: []string{"ES256"}, ClaimMappings: map[string]string{"sub": "user"},
		},
	}, nil); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = c.ACLAuthMethods().Delete(method, nil) })
	policy := b.policy("login", `"list-jobs", "read-job"`, `"list", "read", "write", "destroy"`)
	if _, _, err := c.ACLBindingRules().Create(&api.ACLBindingRule{AuthMethod: method, Selector: `value.user == "ci"`, BindType: "policy", BindName: policy}, nil); err != nil {
		b.Fatal(err)
	}
	b.token = ""
	b.config(jwtBlock(b.jwt(key, "ci")) + profileOf())
	b.settle()
	b.config(jwtBlock(b.jwt(key, "ci")) + desktopOf(b, "800x600"))
	b.fails(b.tryApply(), "the token may not submit the job", "submit-job") // its rights, no more
	b.config(jwtBlock(b.jwt(key, "nobody")) + profileOf())
	b.fails(b.run("plan", "-no-color"), "Nomad refused the login", "no role or policy bindings matched", "a binding rule matches", "State was not changed.")
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	forged := b.jwt(other, "ci")
	b.config(jwtBlock(forged) + profileOf())
	o := b.run("plan", "-no-color")
	b.fails(o, "Nomad refused the login", "State was not changed.")
	if strings.Contains(o.raw, forged) {
		b.Error("the token is shown")
	}
	b.config(jwtBlock(b.jwt(key, "ci")) + profileOf())
	b.destroy()
}

// jwt is a JSON web token for a user (RFC 7515, ES256).
func (b *bench) jwt(key *ecdsa.PrivateKey, user string) string {
	b.Helper()
	encode := base64.RawURLEncoding.EncodeToString
	claims, err := json.Marshal(map[string]any{"sub": user, "aud": "botscreen", "iat": time.Now().Add(-time.Minute).Unix(), "exp": time.Now().Add(time.Hour).Unix()})
	if err != nil {
		b.Fatal(err)
	}
	text := encode([]byte(`{"alg":"ES256","typ":"JWT"}`)) + "." + encode(claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		b.Fatal(err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + encode(signature)
}
