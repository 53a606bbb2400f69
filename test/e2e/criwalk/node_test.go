package criwalk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/node"
)

// suite is what the tests share. It is set before the first test runs.
var suite struct {
	*node.Node
	conn *grpc.ClientConn // to the shim

	containerd *grpc.ClientConn
	cri        runtimeapi.RuntimeServiceClient
	images     runtimeapi.ImageServiceClient

	machine string // image with a guest that is up at once, and heeds no power button
	process string // image of a container that sleeps, and heeds no signal
}

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "nodevirt-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, node.Purge(ctx, dir)) }()
	if err := os.Chmod(dir, 0o711); err != nil { // QEMU's uid looks into it
		return 1, err
	}
	n, err := node.Start(ctx, node.Options{Dir: dir, Bound: true})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, n.Stop(ctx)) }()
	suite.Node = n
	if suite.conn, err = node.DialCRI(n.ShimSocket()); err != nil {
		return 1, err
	}
	if suite.containerd, err = node.DialCRI(n.ContainerdSocket()); err != nil {
		return 1, err
	}
	suite.cri, suite.images = runtimeapi.NewRuntimeServiceClient(suite.conn), runtimeapi.NewImageServiceClient(suite.conn)
	if suite.machine, err = diskImage(ctx, "machine:1", "halted"); err != nil {
		return 1, err
	}
	if suite.process, err = processImage(ctx, "process:1", "sleeps"); err != nil {
		return 1, err
	}
	code = m.Run()
	if code != 0 {
		for _, name := range []string{node.Containerd, node.Libvirtd, node.Shim} {
			fmt.Println(n.LogTail(name, 40))
		}
	}
	return code, nil
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
