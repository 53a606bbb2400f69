package criwalk

import (
	"context"
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

	machine string // image with a guest that is up at once, and ignores the power button
	process string // image of a container that sleeps, and ignores signals
}

func TestMain(m *testing.M) { os.Exit(node.Main(m, node.Options{}, prepare)) }

// prepare connects to the node, and pushes and pulls the images.
func prepare(ctx context.Context, n *node.Node) (err error) {
	suite.Node = n
	if suite.conn, err = node.DialCRI(n.ShimSocket()); err != nil {
		return err
	}
	if suite.containerd, err = node.DialCRI(n.ContainerdSocket()); err != nil {
		return err
	}
	suite.cri, suite.images = runtimeapi.NewRuntimeServiceClient(suite.conn), runtimeapi.NewImageServiceClient(suite.conn)
	if suite.machine, err = diskImage(ctx, "machine:1", "halted"); err != nil {
		return err
	}
	suite.process, err = processImage(ctx, "process:1", "sleeps")
	return err
}
