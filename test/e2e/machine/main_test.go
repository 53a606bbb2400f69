//go:build machine

package machine

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nodevirt/nodevirt/test/cluster"
)

var asVM = flag.Bool("vm", false, "whether the machine is a VM, with a separate kernel")

// suite is what the tests share. It is set before the first test runs.
var suite struct {
	*cluster.Cluster
	machine host
}

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "nodevirt-machine-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	defer func() {
		if s, ok := suite.machine.(*space); ok {
			err = errors.Join(s.remove(context.Background()), err)
		}
	}()
	return cluster.Main(m, cluster.Options{Nodes: 1, Joining: []string{name}, Log: os.Stderr},
		func(ctx context.Context, c *cluster.Cluster) error { return prepare(ctx, c, dir) }), nil
}

// prepare makes the machine's disk, or its folder.
func prepare(ctx context.Context, c *cluster.Cluster, dir string) (err error) {
	suite.Cluster = c
	o := c.Control().GuestOptions()
	o.Log = os.Stderr
	if err := payload(ctx, o, c.PKI(), filepath.Join(dir, "payload")); err != nil {
		return err
	}
	class, err := os.ReadFile("../../../deploy/kubernetes/runtimeclass.yaml")
	if err != nil {
		return fmt.Errorf("read the RuntimeClass: %w", err)
	}
	if err := c.Apply(ctx, string(class)); err != nil {
		return err
	}
	if *asVM {
		suite.machine, err = newVM(ctx, o, dir)
	} else {
		suite.machine, err = newSpace(ctx, o, dir)
	}
	return err
}
