package config_test

import (
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/config"
)

// TestMetricsAddress: metrics are served on this machine alone.
func TestMetricsAddress(t *testing.T) {
	for address, ok := range map[string]bool{
		"": true, "/run/x/metrics.sock": true, "127.0.0.1:9747": true, "[::1]:9747": true,
		"0.0.0.0:9747": false, ":9747": false, "192.0.2.1:9747": false, "localhost:9747": false,
		"127.0.0.1:0": false, "127.0.0.1": false, "metrics.sock": false, "/" + strings.Repeat("x", 107): false,
	} {
		_, err := config.Load("", func(c *config.Config) error {
			c.Metrics.Address = address
			return nil
		})
		if (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
		if err != nil && !strings.Contains(err.Error(), "metrics.address: ") {
			t.Errorf("%q: the error doesn't name the field: %v", address, err)
		}
	}
}
