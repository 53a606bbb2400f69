package vmtest

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Lifecycle is a fake of [domain.Lifecycle].
type Lifecycle struct{ libvirt *Libvirt }

// Define implements domain's.
func (c *Lifecycle) Define(ctx context.Context, text string) error {
	l := c.libvirt
	var x struct {
		Name   string `xml:"name"`
		UUID   string `xml:"uuid"`
		Memory int64  `xml:"memory"` // MiB
		Most   int64  `xml:"maxMemory"`
		VCPUs  struct {
			Current uint32 `xml:"current,attr"`
			Most    uint32 `xml:",chardata"`
		} `xml:"vcpu"`
		VM struct {
			Container struct {
				ID   string `xml:"id,attr"`
				Name string `xml:"name,attr"`
			} `xml:"container"`
			Pod struct {
				Namespace string `xml:"namespace,attr"`
				Name      string `xml:"name,attr"`
			} `xml:"pod"`
		} `xml:"metadata>vm"`
	}
	if err := xml.Unmarshal([]byte(text), &x); err != nil {
		return fmt.Errorf("define domain: %w", err)
	}
	if err := l.enter(ctx, "Define"); err != nil {
		return err
	}
	defer l.mu.Unlock()
	d := l.domains[x.UUID]
	if d == nil {
		d = &fakeDomain{state: domain.State{Status: domain.StatusShutoff, Reason: domain.ReasonNeverRan}, balloon: true}
		l.domains[x.UUID] = d
	}
	d.keep, d.xml = true, text
	d.maximum = domain.Size{VCPUs: x.VCPUs.Most, RAM: max(x.Most, x.Memory) << 20}
	d.defined = domain.Size{VCPUs: cmp.Or(x.VCPUs.Current, x.VCPUs.Most), RAM: x.Memory << 20}
	d.info = domain.Info{
		UUID: x.UUID, Name: x.Name, ContainerID: x.VM.Container.ID, ContainerName: x.VM.Container.Name,
		PodNamespace: x.VM.Pod.Namespace, PodName: x.VM.Pod.Name,
	}
	l.send(domain.Event{UUID: x.UUID, Kind: domain.EventDefined})
	return nil
}

// Tagged implements domain's. Devices have the addresses of the XML that Define got.
func (c *Lifecycle) Tagged(ctx context.Context, uuid string, spec vmspec.Spec) ([]vmspec.TaggedDevice, error) {
	l := c.libvirt
	d, err := l.on(ctx, "Tagged", uuid)
	if err != nil {
		return nil, err
	}
	defer l.mu.Unlock()
	return domain.TaggedIn(d.xml, spec)
}

// Start implements domain's.
func (c *Lifecycle) Start(ctx context.Context, uuid string, _ map[string][]*os.File) (int, error) {
	l := c.libvirt
	d, err := l.on(ctx, "Start", uuid)
	if err != nil {
		return 0, err
	}
	defer l.mu.Unlock()
	if d.state.Status != domain.StatusShutoff {
		return 0, fmt.Errorf("start domain %s: %w", d.info.Name, domain.ErrRunning)
	}
	l.lastPID++
	d.state = domain.State{Status: domain.StatusPaused, Reason: domain.ReasonUser, PID: l.lastPID}
	d.size, d.memory, d.presses = d.defined, d.defined.RAM, 0
	l.send(domain.Event{UUID: uuid, Kind: domain.EventStarted})
	l.notify()
	return d.state.PID, nil
}

// Restore implements domain's.
func (c *Lifecycle) Restore(ctx context.Context, uuid string, files map[string][]*os.File, memory io.Reader, _ string) (int, error) {
	data, err := io.ReadAll(memory)
	if err != nil {
		return 0, fmt.Errorf("restore domain %s: %w", uuid, err)
	}
	pid, err := c.Start(ctx, uuid, files)
	if err == nil {
		c.libvirt.mu.Lock()
		defer c.libvirt.mu.Unlock()
		c.libvirt.domains[uuid].restored = string(data)
	}
	return pid, err
}

// KeepVariables implements domain's.
func (c *Lifecycle) KeepVariables(ctx context.Context, uuid string, file *os.File) error {
	l := c.libvirt
	d, err := l.on(ctx, "KeepVariables", uuid)
	if err != nil {
		return err
	}
	defer l.mu.Unlock()
	if d.state.Status != domain.StatusPaused {
		return fmt.Errorf("keep the UEFI variables of domain %s: %w", d.info.Name, domain.ErrNotRunning)
	}
	d.variables = file.Name()
	return nil
}

// Pin implements domain's.
func (c *Lifecycle) Pin(ctx context.Context, uuid string, p domain.Pins) error {
	l := c.libvirt
	d, err := l.onRunning(ctx, "Pin", uuid)
	if err != nil {
		return err
	}
	defer l.mu.Unlock()
	d.pins = p
	return nil
}

// Resume implements domain's.
func (c *Lifecycle) Resume(ctx context.Context, uuid string) error {
	l := c.libvirt
	d, err := l.onRunning(ctx, "Resume", uuid)
	if err != nil {
		return err
	}
	defer l.mu.Unlock()
	if d.state.Status == domain.StatusPaused {
		d.state.Status, d.state.Reason = domain.StatusRunning, domain.ReasonNone
		l.send(domain.Event{UUID: uuid, Kind: domain.EventResumed})
	}
	return nil
}

// Pause implements domain's.
func (c *Lifecycle) Pause(ctx context.Context, uuid string) error {
	l := c.libvirt
	d, err := l.onRunning(ctx, "Pause", uuid)
	if err != nil {
		return err
	}
	defer l.mu.Unlock()
	if d.state.Status == domain.StatusRunning {
		d.state.Status, d.state.Reason = domain.StatusPaused, domain.ReasonUser
		l.send(domain.Event{UUID: uuid, Kind: domain.EventSuspended, Reason: domain.ReasonUser})
	}
	return nil
}

// ForgetTicks implements domain's.
func (c *Lifecycle) ForgetTicks(ctx context.Context, uuid string) error {
	l := c.libvirt
	if _, err := l.onRunning(ctx, "ForgetTicks", uuid); err != nil {
		return err
	}
	l.mu.Unlock()
	return nil
}

// Shutdown implements domain's.
func (c *Lifecycle) Shutdown(ctx context.Context, uuid string) error {
	l := c.libvirt
	d, err := l.onRunning(ctx, "Shutdown", uuid)
	if err != nil {
		return err
	}
	defer l.mu.Unlock()
	if d.presses++; d.presses == d.obeys {
		l.end(d, domain.ReasonShutdown)
	}
	return nil
}

// Destroy implements domain's.
func (c *Lifecycle) Destroy(ctx context.Context, uuid string) error {
	l := c.libvirt
	d, err := l.on(ctx, "Destroy", uuid)
	if errors.Is(err, domain.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer l.mu.Unlock()
	l.end(d, domain.ReasonDestroyed)
	return nil
}

// Undefine implements domain's.
func (c *Lifecycle) Undefine(ctx context.Context, uuid string) error {
	l := c.libvirt
	d, err := l.on(ctx, "Undefine", uuid)
	if errors.Is(err, domain.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer l.mu.Unlock()
	if d.keep = false; d.state.Status == domain.StatusShutoff {
		delete(l.domains, uuid)
	}
	l.send(domain.Event{UUID: uuid, Kind: domain.EventUndefined})
	return nil
}
