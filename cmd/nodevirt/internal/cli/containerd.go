package cli

import (
	"context"
	"fmt"
	"os"

	containerd "github.com/containerd/containerd/v2/client"
)

// DialContainerd connects to the containerd whose socket is at address, in the namespace
// of its CRI plug-in, and checks that it answers. The caller must close the client.
func DialContainerd(ctx context.Context, address string) (*containerd.Client, error) {
	if _, err := os.Stat(address); err != nil {
		return nil, fmt.Errorf("this node's containerd: %w", err)
	}
	c, err := containerd.New(address,
		containerd.WithDefaultNamespace(Namespace), containerd.WithTimeout(dialTime))
	if err != nil {
		return nil, fmt.Errorf("this node's containerd at %s: %w", address, err)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	if _, err := c.Version(ctx); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("this node's containerd at %s: %w", address, Plain(err))
	}
	return c, nil
}
