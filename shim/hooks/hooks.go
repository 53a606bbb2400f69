// Package hooks calls the hook sidecars of VMs, with KubeVirt's protocol.
//
// It owns the connections to the sidecars' sockets, the bounds of each call, and what a
// sidecar may change of cloud-init's data. It leaves to package domainxml what a sidecar
// may change of a domain, and to package lifecycle when a hook is called.
//
// A sidecar is a stranger: its author wrote the pod, and has no other rights on the
// node. It may not answer, answer slowly, or put something else in its socket's place.
package hooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nodevirt/nodevirt/shim/hooks/domainxml"
	"github.com/nodevirt/nodevirt/shim/hooks/wire"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Limits are how long calls may take.
type Limits struct {
	// Appear is how long all sidecars of a VM have to listen and to say which hooks they have.
	Appear time.Duration
	// Call is how long one hook may take, and Shutdown all hooks of that name.
	Call, Shutdown time.Duration
}

// DefaultLimits returns limits that fit into a kubelet's call.
func DefaultLimits() Limits {
	return Limits{Appear: 30 * time.Second, Call: 20 * time.Second, Shutdown: 5 * time.Second}
}

// Options are needed in full.
type Options struct {
	// Enabled lets VMs have hook sidecars.
	Enabled bool
	Limits  Limits
	Logger  *slog.Logger
}

// Hooks calls the hooks of one node's VMs. Its methods do nothing for a VM without sidecars.
type Hooks struct{ o Options }

// ErrOff is the error for a VM with sidecars on a node that allows none.
var ErrOff = errors.New("hook sidecars are off on this node; remove the annotation " + vmspec.AnnotationHooks +
	", or have the node's administrator set vm.hook_sidecars in the shim's config")

// New returns the hooks of a node.
func New(o Options) *Hooks { return &Hooks{o} }

// Await waits until all sidecars of a VM listen. It returns [ErrOff] if the node allows none.
func (h *Hooks) Await(ctx context.Context, r record.Container) error {
	all, err := h.collect(ctx, r)
	closeAll(all)
	return err
}

// OnDefineDomain returns the XML of a VM's domain as its sidecars want it. Its error names
// a change that they may not make.
func (h *Hooks) OnDefineDomain(ctx context.Context, r record.Container, xml string) (string, error) {
	err := h.each(ctx, r, wire.OnDefineDomain, func(ctx context.Context, s *sidecar, vmi []byte) error {
		var reply wire.OnDefineDomainResult
		if err := s.call(ctx, wire.OnDefineDomain, &wire.OnDefineDomainParams{DomainXML: []byte(xml), Vmi: vmi}, &reply); err != nil {
			return err
		}
		checked, err := domainxml.Check(xml, string(reply.GetDomainXML()))
		xml = checked
		return err
	})
	if err != nil {
		return "", err
	}
	return xml, nil
}

// PreCloudInitIso returns the content of a VM's cloud-init disk as its sidecars want it.
func (h *Hooks) PreCloudInitIso(ctx context.Context, r record.Container, source vmspec.Source, content vmspec.Seed) (vmspec.Seed, error) {
	err := h.each(ctx, r, wire.PreCloudInitIso, func(ctx context.Context, s *sidecar, vmi []byte) error {
		data, err := newCloudInit(source, content)
		if err != nil {
			return err
		}
		var reply wire.PreCloudInitIsoResult
		err = s.call(ctx, wire.PreCloudInitIso,
			&wire.PreCloudInitIsoParams{CloudInitData: data.whole, CloudInitNoCloudSource: data.old, Vmi: vmi}, &reply)
		if err != nil {
			return err
		}
		content, err = data.merge(&reply)
		return err
	})
	return content, err
}

// Shutdown reports to the sidecars that their VM has ended. A sidecar that does not
// answer keeps nothing from going on; one may be called more than once.
func (h *Hooks) Shutdown(ctx context.Context, r record.Container) {
	ctx, cancel := context.WithTimeout(ctx, h.o.Limits.Shutdown)
	defer cancel()
	err := h.each(ctx, r, wire.Shutdown, func(ctx context.Context, s *sidecar, _ []byte) error {
		return s.call(ctx, wire.Shutdown, &wire.ShutdownParams{}, &wire.ShutdownResult{})
	})
	if err != nil && !errors.Is(err, ErrOff) {
		h.o.Logger.Warn("hook Shutdown of a VM failed", "container", r.ID, "error", err)
	}
}

// each calls one hook of each sidecar that has it: those with a high priority first, and
// then in the order of the annotation.
func (h *Hooks) each(ctx context.Context, r record.Container, hook string, do func(context.Context, *sidecar, []byte) error) error {
	all, err := h.collect(ctx, r)
	defer closeAll(all)
	if err != nil || len(all) == 0 {
		return err
	}
	vmi, err := instance(r)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(slices.Clone(all), func(s *sidecar) bool { return !s.has(hook) })
	slices.SortStableFunc(all, func(a, b *sidecar) int { return int(b.hooks[hook]) - int(a.hooks[hook]) })
	for _, s := range all {
		if err := h.one(ctx, s, vmi, do); err != nil {
			return fmt.Errorf("hook %s of container %s: %w", hook, s.name, err)
		}
	}
	return nil
}

func (h *Hooks) one(ctx context.Context, s *sidecar, vmi []byte, do func(context.Context, *sidecar, []byte) error) error {
	ctx, cancel := context.WithTimeout(ctx, h.o.Limits.Call)
	defer cancel()
	return do(ctx, s, vmi)
}

// collect connects to all sidecars of a VM. The caller closes them, also those that come
// with an error.
func (h *Hooks) collect(ctx context.Context, r record.Container) ([]*sidecar, error) {
	if r.Spec.Hooks == nil {
		return nil, nil
	}
	if !h.o.Enabled {
		return nil, ErrOff
	}
	ctx, cancel := context.WithTimeout(ctx, h.o.Limits.Appear)
	defer cancel()
	var all []*sidecar
	for n := range r.Spec.Hooks.Sidecars {
		s, err := await(ctx, r.Spec.Hooks.Folder, vmspec.HookName(n))
		if err != nil {
			return all, err
		}
		all = append(all, s)
	}
	return all, nil
}

func closeAll(all []*sidecar) {
	for _, s := range all {
		_ = s.conn.Close() // it only drops the connection
	}
}
