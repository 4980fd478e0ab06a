// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
)

const (
	// minToken is the least length of a bearer token that guards the metrics, in bytes.
	minToken = 16
	maxToken = 4 << 10
	// metricsTimeout bounds one answer: a screen that says nothing is left out of it.
	metricsTimeout = 10 * time.Second
)

func (c *cli) metricsCommand() *cobra.Command {
	var runDir, listen, tokenFile string
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "Serve what the screens of this node do, for Prometheus",
		Long: `Serve /metrics for Prometheus with what the screens of this node do: by state and isolation, how long starts and
wakes took, viewers, takeovers, refusals, bytes relayed and memory. It asks the supervisors, as root, and wakes nothing.

It listens on a loopback address. Another one needs --token-file, whose content Prometheus sends as bearer token
(authorization { credentials_file }); put TLS before it where the network is not yours.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, err := metricsToken(listen, tokenFile)
			if err != nil {
				return &usageError{err}
			}
			return c.serveMetrics(cmd.Context(), listen, newMetrics(runDir).handler(token))
		},
	}
	cmd.Flags().StringVar(&runDir, "run-dir", "/run/botscreen", "the driver's run_dir")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:9477", "address and port to listen on")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "file with a bearer token that every scrape has to send")
	return cmd
}

// metricsToken is the token to ask for; empty for none, which only loopback may have (X43).
func metricsToken(listen, file string) (string, error) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("--listen: %q is not an address with a port", listen)
	}
	if file == "" {
		if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
			return "", fmt.Errorf("--listen: %q is no loopback address; give --token-file, so that not everybody can read which screens there are", listen)
		}
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if len(token) < minToken || len(token) > maxToken {
		return "", fmt.Errorf("--token-file: its token has %d bytes; from %d to %d are needed", len(token), minToken, maxToken)
	}
	return token, nil
}

// handler answers scrapes, one at a time.
func (m *metrics) handler(token string) http.Handler {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	page := promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 1, ErrorHandling: promhttp.HTTPErrorOnError})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if token != "" && (!ok || !same(given, token)) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a bearer token is needed", http.StatusUnauthorized)
			return
		}
		page.ServeHTTP(w, r)
	})
	return mux
}

func (c *cli) serveMetrics(ctx context.Context, address string, handler http.Handler) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return failf(exitFailed, "Cannot serve metrics: %w. Choose another address with --listen.", err)
	}
	_, _ = fmt.Fprintf(c.errs, "Metrics are at http://%s/metrics\n", listener.Addr())
	server := &http.Server{Handler: handler, ReadTimeout: 5 * time.Second, WriteTimeout: 2 * metricsTimeout, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return failf(exitFailed, "Cannot serve metrics any more: %w.", err)
	}
	return context.Cause(ctx)
}
