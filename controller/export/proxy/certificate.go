package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// reload is the time between two reads of the certificate, which the controller renews weeks before its end.
const reload = time.Minute

// certificate is that of the proxy, in files that the kubelet replaces.
type certificate struct {
	folder string
	log    *slog.Logger
	now    atomic.Pointer[tls.Certificate]
}

// load reads the files.
func (c *certificate) load() error {
	pair, err := tls.LoadX509KeyPair(filepath.Join(c.folder, corev1.TLSCertKey), filepath.Join(c.folder, corev1.TLSPrivateKeyKey))
	if err != nil {
		return fmt.Errorf("read the export proxy's certificate: %w", err)
	}
	before := c.now.Swap(&pair)
	if before == nil || !before.Leaf.Equal(pair.Leaf) {
		c.log.Info("serving with a new certificate", "until", pair.Leaf.NotAfter)
	}
	return nil
}

// follow reads the files again and again until the context ends.
func (c *certificate) follow(ctx context.Context) {
	for tick := time.NewTicker(reload); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
			if err := c.load(); err != nil {
				c.log.Warn("serving with the former certificate", "err", err)
			}
		}
	}
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.now.Load(), nil }
