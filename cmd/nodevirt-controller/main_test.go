package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nodevirt/nodevirt/controller"
	"github.com/nodevirt/nodevirt/controller/export/proxy"
	"github.com/nodevirt/nodevirt/controller/export/server"
)

// TestRun: wrong arguments are reported, and nothing starts.
func TestRun(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere/config") // and what a VM's pod has: no service account
	for _, tt := range []struct {
		args []string
		want string // in the error; "" for none
	}{
		{[]string{"-help"}, ""},
		{[]string{"-version"}, ""},
		{[]string{"-verbose"}, "flag provided but not defined: -verbose"},
		{[]string{"serve"}, `unexpected argument "serve"`},
		{[]string{"-log-level", "loud"}, "log-level"},
		{[]string{"-kubeconfig", "/nowhere/config"}, "find the API server"},
		{[]string{server.Flag, "/nowhere"}, "read the export's config: open /nowhere/server/config.json"},
		{[]string{proxy.Flag, "/nowhere"}, "find the API server"},
		{nil, "run nodevirt-shim on its node"},
	} {
		err := run(t.Context(), tt.args)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.want)
		}
	}
}

// TestHold: in an attachment pod the program needs no cluster, and waits.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, []string{controller.HoldVolumes}) }()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v", err)
		default:
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
