//go:build cluster

package cluster

import (
	"context"
	"os/exec"
	"testing"

	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
)

// start starts kubectl on a terminal.
func start(t *testing.T, args ...string) *clustertest.Session {
	t.Helper()
	return startOn(t, suite.KubectlCommand, args...)
}

// startOn is start for another client.
func startOn(t *testing.T, client func(context.Context, ...string) *exec.Cmd, args ...string) *clustertest.Session {
	t.Helper()
	return clustertest.Start(t, client, args...)
}
