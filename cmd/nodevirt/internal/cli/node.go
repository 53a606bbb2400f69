package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// DefaultEndpoint is the shim's CRI socket.
	DefaultEndpoint = "unix:///run/nodevirt/nodevirt.sock"
	// DefaultContainerd is containerd's socket.
	DefaultContainerd = "/run/containerd/containerd.sock"
	// Namespace is the namespace of containerd's CRI plug-in.
	Namespace = "k8s.io"

	dialTime   = 5 * time.Second
	maxMessage = 64 << 20
)

// EndpointFlag adds the flag for the shim's socket; its default comes from the
// environment, as crictl's does.
func EndpointFlag(cmd *cobra.Command, endpoint *string) {
	cmd.Flags().StringVar(endpoint, "runtime-endpoint", env("CONTAINER_RUNTIME_ENDPOINT", DefaultEndpoint),
		"the shim's CRI `socket` [$CONTAINER_RUNTIME_ENDPOINT]")
}

// ConfigFlag gives cmd the flag --config, with the path of the shim's config file.
func ConfigFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "config", "", "the shim's config `file` (default: built-in values)")
	_ = cmd.MarkFlagFilename("config", "toml") // fails only if the flag does not exist
}

// ContainerdFlag adds the flag for containerd's socket.
func ContainerdFlag(cmd *cobra.Command, address *string) {
	cmd.Flags().StringVar(address, "containerd", env("CONTAINERD_ADDRESS", DefaultContainerd),
		"containerd's `socket` [$CONTAINERD_ADDRESS]")
}

func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// Node is a connection to a CRI socket.
type Node struct {
	Pods   runtimeapi.RuntimeServiceClient
	Images runtimeapi.ImageServiceClient
	conn   *grpc.ClientConn
}

// Dial connects to the CRI socket at endpoint, a path or a unix:// URL, and checks that
// it answers. The caller must close the Node.
func Dial(ctx context.Context, endpoint string) (*Node, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	if strings.Contains(path, "://") || path == "" {
		return nil, fmt.Errorf("runtime endpoint %q: want unix:///PATH", endpoint)
	}
	n, err := Connect(path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	if _, err := n.Pods.Version(ctx, &runtimeapi.VersionRequest{}); err != nil {
		n.Close()
		return nil, unanswered(path, err)
	}
	return n, nil
}

// Connect is Dial for the path of a socket, without the check.
func Connect(path string) (*Node, error) {
	conn, err := grpc.NewClient("unix:"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return &Node{
		Pods:   runtimeapi.NewRuntimeServiceClient(conn),
		Images: runtimeapi.NewImageServiceClient(conn),
		conn:   conn,
	}, nil
}

// unanswered adds a remedy to the error of a failed first call.
func unanswered(path string, err error) error {
	if _, statErr := os.Stat(path); statErr != nil {
		return fmt.Errorf("no shim at %s (%w): start nodevirt-shim, or name its socket with --runtime-endpoint; "+
			"\"nodevirt doctor\" shows what is missing", path, statErr)
	}
	if status.Code(err) == codes.Unavailable || status.Code(err) == codes.DeadlineExceeded {
		return fmt.Errorf("the shim at %s does not answer (%w): is it running? "+
			"\"nodevirt doctor\" shows what is missing", path, Plain(err))
	}
	return fmt.Errorf("call the shim at %s: %w", path, Plain(err))
}

// Close ends the connection.
func (n *Node) Close() { _ = n.conn.Close() }
