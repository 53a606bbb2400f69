package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/test/node/config"
)

// RegistryTransport reaches the node's registry from outside, whatever the address asked for.
func (n *Node) RegistryTransport() http.RoundTripper {
	var dialer net.Dialer
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil
	t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "unix", n.o.run("registry.sock"))
	}
	return t
}

func (n *Node) pingRegistry(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+registryAddress+"/v2/", nil)
	if err != nil {
		return fmt.Errorf("ask the registry: %w", err)
	}
	t := n.RegistryTransport().(*http.Transport)
	defer t.CloseIdleConnections()
	answer, err := t.RoundTrip(r)
	if err != nil {
		return fmt.Errorf("ask the registry: %w", err)
	}
	return answer.Body.Close()
}

// DialCRI connects to a CRI socket: ShimSocket or ContainerdSocket. The caller closes.
func DialCRI(socket string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", socket, err)
	}
	return conn, nil
}

func (n *Node) pingCRI(ctx context.Context, socket string) (err error) {
	conn, err := DialCRI(socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	_, err = cri.NewRuntimeServiceClient(conn).Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return fmt.Errorf("ask %s for its status: %w", socket, err)
	}
	return nil
}

func (n *Node) pingStargz(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", n.o.run(filepath.Base(config.StargzSocket)))
	if err != nil {
		return fmt.Errorf("reach the snapshotter: %w", err)
	}
	return conn.Close()
}

// pingLibvirt asks by virsh, for libvirtd takes connections some time before it answers.
func (n *Node) pingLibvirt(ctx context.Context) error {
	_, err := output(n.Command(ctx, "virsh", "--connect", "qemu:///system", "version"))
	return err
}

func (n *Node) pingTgtd(ctx context.Context) error {
	_, err := n.tgtd().List(ctx)
	return err
}

// tgtd is the node's, by its socket as it is seen from outside.
func (n *Node) tgtd() *iscsi.Daemon {
	return iscsi.New(iscsi.Options{Socket: n.o.run(tgtdFolder, "tgtd"), Logger: slog.New(slog.DiscardHandler)})
}

// Targets are the disks that the node's tgtd serves.
func (n *Node) Targets(ctx context.Context) ([]iscsi.Status, error) { return n.tgtd().List(ctx) }

// wait asks a component until it serves or its process has ended, or ctx is done.
func (n *Node) wait(ctx context.Context, c Component) error {
	for {
		try, cancel := context.WithTimeout(ctx, 30*time.Second)
		err := c.Ready(try, n)
		cancel()
		if err == nil {
			return nil
		}
		s, listErr := n.state(c.Name)
		if listErr != nil {
			return listErr
		}
		if s.Ended {
			return fmt.Errorf("%s ended at its start: %s", c.Name, s.Status)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; last: %w", c.Name, context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
