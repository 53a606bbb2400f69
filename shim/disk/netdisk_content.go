package disk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/credential"
	"github.com/nodevirt/nodevirt/shim/record"
)

var (
	// ErrNetworkOff says that the node's administrator has not allowed network disks.
	ErrNetworkOff = errdefs.ErrFailedPrecondition.WithMessage("network disks are off on this node: " +
		"set disks.network in the config of nodevirt-shim, or have the pod run on another node")
	// errCephNetwork says that QEMU would not reach a cluster of Ceph.
	errCephNetwork = errdefs.ErrFailedPrecondition.WithMessage("the monitor is in none of the networks in disks.ceph_networks " +
		"in the config of nodevirt-shim: add the networks of monitors and OSDs there")
	// ErrNoPortal says that no portal of a network disk answers.
	ErrNoPortal = errdefs.ErrUnavailable.WithMessage("no portal answers")
)

// networkContent is where a network disk is.
type networkContent struct {
	nothing
	on    bool
	asker asker
	// ceph are the networks in which QEMU reaches Ceph.
	ceph []netip.Prefix
}

// acquire finds the addresses of a network disk's portals. Of an iSCSI target's it is the
// first one that answers, since QEMU connects to one; a kubelet repeats this call until
// there is one.
func (o networkContent) acquire(ctx context.Context, k Disk, _ *imageunpack.Disk) (record.Disk, error) {
	n := k.Network
	if !o.on {
		return record.Disk{}, fmt.Errorf("%s: %w", n, ErrNetworkOff)
	}
	held := &record.NetworkDisk{}
	var err error
	if n.RBD != nil {
		held.Portals, err = o.asker.all(ctx, n.RBD.Monitors)
		for _, p := range held.Portals {
			if !slices.ContainsFunc(o.ceph, func(n netip.Prefix) bool { return n.Contains(p.Addr()) }) {
				err = fmt.Errorf("%s: %w", p, errCephNetwork)
			}
		}
	} else {
		held.Portals, err = o.asker.first(ctx, n.ISCSI.Portals)
	}
	if err == nil && n.ISCSI != nil && n.SecretName != "" {
		held.User, _, err = credential.CHAP(k.Secret)
	}
	if err != nil {
		return record.Disk{}, fmt.Errorf("%s: %w", n, err)
	}
	return record.Disk{Network: held}, nil
}

// askTime is how long one portal may take to answer.
const askTime = 3 * time.Second

// asker connects to portals, and returns their addresses.
type asker func(ctx context.Context, portal string) (netip.AddrPort, error)

// dial is an asker by TCP.
func dial(ctx context.Context, portal string) (netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", portal)
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer conn.Close()
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), err
}

// first returns the first portal that answers.
func (a asker) first(ctx context.Context, portals []string) ([]netip.AddrPort, error) {
	var errs []error
	for _, p := range portals {
		at, err := a(ctx, p)
		if err == nil {
			return []netip.AddrPort{at}, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrNoPortal, errors.Join(errs...))
}

// all returns those that answer.
func (a asker) all(ctx context.Context, portals []string) ([]netip.AddrPort, error) {
	var found []netip.AddrPort
	var errs []error
	for _, p := range portals {
		at, err := a(ctx, p)
		if err == nil {
			found = append(found, at)
		}
		errs = append(errs, err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: %w", ErrNoPortal, errors.Join(errs...))
	}
	return found, nil
}

// any returns an error unless one of several addresses answers.
func (a asker) any(ctx context.Context, portals []netip.AddrPort) error {
	var text []string
	for _, p := range portals {
		text = append(text, p.String())
	}
	_, err := a.first(ctx, text)
	return err
}
