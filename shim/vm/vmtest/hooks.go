package vmtest

import (
	"context"
	"strings"

	"github.com/nodevirt/nodevirt/shim/record"
)

// HookTitle is the title that the sidecars of [Hooks] give to domains.
const HookTitle = "<title>hooked</title>"

// Hooks is a fake of [hooks.Hooks]: the VMs' sidecars give domains a title.
type Hooks struct{ script *Script }

// NewHooks returns a node whose sidecars answer.
func NewHooks(s *Script) *Hooks { return &Hooks{s} }

// Await implements hooks'.
func (h *Hooks) Await(ctx context.Context, r record.Container) error {
	if r.Spec.Hooks == nil {
		return nil
	}
	return h.script.enter(ctx, "Hooks.Await")
}

// OnDefineDomain implements hooks'.
func (h *Hooks) OnDefineDomain(ctx context.Context, r record.Container, xml string) (string, error) {
	if r.Spec.Hooks == nil {
		return xml, nil
	}
	if err := h.script.enter(ctx, "Hooks.OnDefineDomain"); err != nil {
		return "", err
	}
	return strings.Replace(xml, "</domain>", HookTitle+"</domain>", 1), nil
}

// Shutdown implements hooks'.
func (h *Hooks) Shutdown(ctx context.Context, r record.Container) {
	if r.Spec.Hooks != nil {
		_ = h.script.enter(ctx, "Hooks.Shutdown") // hooks' reports no error
	}
}
