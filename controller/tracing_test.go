package controller_test

import (
	"log/slog"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/nodevirt/nodevirt/controller"
	"github.com/nodevirt/nodevirt/tracing"
)

// TestTracingFlags: an error names the flags.
func TestTracingFlags(t *testing.T) {
	o := controller.Options{Tracing: tracing.Options{Endpoint: "collector", Ratio: 2, CA: "ca.pem"}}
	err := controller.Run(t.Context(), &rest.Config{}, o, slog.New(slog.DiscardHandler))
	for _, flag := range []string{"-tracing-endpoint", "-tracing-ratio", "-tracing-ca"} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("error %v does not name %s", err, flag)
		}
	}
}
