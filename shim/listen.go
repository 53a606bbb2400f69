package shim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// listen opens a unix socket with mode 0660. A lock file distinguishes a socket
// that a crash left, which listen removes, from one that another shim serves.
func listen(ctx context.Context, path string) (_ net.Listener, unlock func(), err error) {
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, err
	}
	if err := lockFile(lock); err != nil {
		lock.Close()
		return nil, nil, fmt.Errorf("listen at %s: another shim listens there: %w", path, err)
	}
	unlock = func() { lock.Close() }
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		unlock()
		return nil, nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err == nil {
		err = os.Chmod(path, 0o660)
	}
	if err != nil {
		unlock()
		return nil, nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	return l, unlock, nil
}

// listenForScrapes opens the address of the metrics: a socket's path or an address
// on loopback. With "" it returns no listener.
func listenForScrapes(ctx context.Context, address string) (_ net.Listener, unlock func(), err error) {
	switch {
	case address == "":
		return nil, func() {}, nil
	case filepath.IsAbs(address):
		if err := os.MkdirAll(filepath.Dir(address), 0o755); err != nil {
			return nil, nil, fmt.Errorf("serve metrics: %w", err)
		}
		l, unlock, err := listen(ctx, address)
		if err != nil {
			return nil, nil, fmt.Errorf("serve metrics: %w", err)
		}
		return l, unlock, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, nil, fmt.Errorf("serve metrics: %w; choose another metrics.address", err)
	}
	return l, func() {}, nil
}
