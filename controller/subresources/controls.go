package subresources

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/internal/turns"
)

// controls are what the VM of a running instance does at once.
type controls struct {
	nodes commander
	// reports are the answers of guests' agents that the controller holds.
	reports *turns.Turns
	found   guestFinder
}

// commander has nodes carry out controls.
type commander interface {
	Control(ctx context.Context, p *corev1.Pod, most int, name string, arguments ...string) ([]byte, error)
	Copy(ctx context.Context, p *corev1.Pod, to io.Writer, name string, arguments ...string) error
}

// guestFinder finds running instances.
type guestFinder interface {
	instances
	guests
}

func newControls(nodes commander, found guestFinder) *controls {
	return &controls{nodes: nodes, found: found, reports: turns.New("other reports of guests' agents", bounds.Reports, bounds.NamespaceReports)}
}

// pause stops the machine's processors.
func (b *controls) pause(ctx context.Context, c *call) error {
	return b.setPaused(ctx, c, true)
}

// unpause lets them go on.
func (b *controls) unpause(ctx context.Context, c *call) error {
	return b.setPaused(ctx, c, false)
}

func (b *controls) setPaused(ctx context.Context, c *call, paused bool) error {
	options := struct {
		DryRun []string `json:"dryRun"`
	}{}
	if err := c.body(&options); err != nil {
		return err
	}
	vmi, found, err := b.found.running(ctx, c)
	if err != nil {
		return err
	}
	switch is := hasCondition(vmi, kubevirt.VirtualMachineInstancePaused); {
	case paused && is:
		return c.conflict("VMI is already paused")
	case !paused && !is:
		return c.conflict("VMI is not paused")
	case paused && endsPaused(vmi.Spec.LivenessProbe):
		return apierrors.NewForbidden(c.group(), c.name, errPausedProbe)
	}
	button := "unpause"
	if paused {
		button = "pause"
	}
	if len(options.DryRun) == 0 {
		if _, err := b.control(ctx, found, button); err != nil {
			return err
		}
	}
	return c.accept()
}

// freeze stops the guest's writes to its file systems, for at most the time that the
// caller gives.
func (b *controls) freeze(ctx context.Context, c *call) error {
	options := struct {
		UnfreezeTimeout *metav1.Duration `json:"unfreezeTimeout"`
	}{}
	if err := c.body(&options); err != nil {
		return err
	}
	_, found, err := b.found.running(ctx, c)
	if err != nil {
		return err
	}
	limit := "0s"
	if options.UnfreezeTimeout != nil {
		limit = options.UnfreezeTimeout.Duration.String()
	}
	if _, err := b.control(ctx, found, "freeze", limit); err != nil {
		return failedCommand("Freeze", err)
	}
	return c.accept()
}

// unfreeze lets the guest write again.
func (b *controls) unfreeze(ctx context.Context, c *call) error {
	_, found, err := b.found.running(ctx, c)
	if err != nil {
		return err
	}
	if _, err := b.control(ctx, found, "unfreeze"); err != nil {
		return failedCommand("Unfreeze", err)
	}
	return c.accept()
}

// failedCommand is KubeVirt's error of a command that the node could not carry out.
func failedCommand(name string, err error) error {
	return apierrors.NewInternalError(fmt.Errorf("command %s failed: %w", name, err))
}

// softReboot asks the guest to boot again: by its power button, or by its agent if it
// has no ACPI.
func (b *controls) softReboot(ctx context.Context, c *call) error {
	vmi, err := b.found.instance(ctx, c)
	if err != nil {
		return err
	}
	f := vmi.Spec.Domain.Features
	hasACPI := f == nil || f.ACPI.Enabled == nil || *f.ACPI.Enabled
	if vmi.Status.Phase == kubevirt.Running && !hasCondition(vmi, kubevirt.VirtualMachineInstancePaused) && !hasACPI &&
		!hasCondition(vmi, kubevirt.VirtualMachineInstanceAgentConnected) {
		return c.conflict("VMI neither have the agent connected nor the ACPI feature enabled")
	}
	return b.press("reboot")(ctx, c)
}

const errPausedProbe = constant("Pausing VMIs with a LivenessProbe by HTTP or TCP is not supported: it would end them")

// endsPaused reports whether a liveness probe ends a VM that is paused. Those by the guest agent do not count then.
func endsPaused(p *kubevirt.Probe) bool { return p != nil && (p.HTTPGet != nil || p.TCPSocket != nil) }

// constant is an error that is only its text.
type constant string

func (e constant) Error() string { return string(e) }

func hasCondition(vmi *kubevirt.VirtualMachineInstance, kind kubevirt.VirtualMachineInstanceConditionType) bool {
	for _, c := range vmi.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// press is a button of the machine that has nothing to say.
func (b *controls) press(button string) handler {
	return func(ctx context.Context, c *call) error {
		vmi, found, err := b.found.running(ctx, c)
		if err != nil {
			return err
		}
		if hasCondition(vmi, kubevirt.VirtualMachineInstancePaused) {
			return c.conflict("VMI is paused")
		}
		if _, err := b.control(ctx, found, button); err != nil {
			return err
		}
		return c.accept()
	}
}

// agentReport returns what the guest's agent reports. The shim converts it to KubeVirt's types.
func (b *controls) agentReport(control string) handler {
	return func(ctx context.Context, c *call) error {
		vmi, found, err := b.found.running(ctx, c)
		if err != nil {
			return err
		}
		if !hasCondition(vmi, kubevirt.VirtualMachineInstanceAgentConnected) {
			// As KubeVirt: its clients show text of an internal error alone.
			http.Error(c.w, "VMI does not have guest agent connected", http.StatusInternalServerError)
			return nil
		}
		end, err := b.reports.Take(ctx, c.namespace, func() {})
		if err != nil {
			return err
		}
		defer end()
		text, err := b.control(ctx, found, control)
		if err != nil {
			return err
		}
		if !json.Valid(text) {
			return apierrors.NewInternalError(constant("the node's answer is no JSON"))
		}
		return c.replyJSON(text)
	}
}

// screenshot is a picture of the machine's display, as PNG. It passes to the caller as it arrives: a picture of a large
// display has tens of megabytes.
func (b *controls) screenshot(ctx context.Context, c *call) error {
	_, found, err := b.found.running(ctx, c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	picture := &passed{to: c.w, kind: "image/png", most: bounds.Screenshot, end: cancel}
	if err := b.nodes.Copy(ctx, found, picture, "screenshot"); err != nil && !picture.begun {
		return err
	} else if err != nil || picture.failed {
		panic(http.ErrAbortHandler) // the caller must not take a part for the whole
	}
	return nil
}

// passed passes an answer to a caller.
type passed struct {
	to   http.ResponseWriter
	kind string // the content's type
	most int    // the bytes that are left
	end  func() // ends the answer

	begun, failed bool
}

// Write implements io.Writer. After an error it ends the answer, and drops the rest.
func (p *passed) Write(text []byte) (int, error) {
	if p.failed {
		return len(text), nil
	}
	if !p.begun {
		p.begun = true
		p.to.Header().Set("Content-Type", p.kind)
		p.to.WriteHeader(http.StatusOK)
	}
	p.most -= len(text)
	if _, err := p.to.Write(text); err != nil || p.most < 0 {
		p.failed = true
		p.end()
	}
	return len(text), nil
}

// control presses a button of the machine in a pod, and returns what it says.
func (b *controls) control(ctx context.Context, p *corev1.Pod, name string, arguments ...string) ([]byte, error) {
	return b.nodes.Control(ctx, p, bounds.Report, name, arguments...)
}
