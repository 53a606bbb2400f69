package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/console/terminal"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/stream"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// terminals connects clients to serial consoles; [terminal.Terminals] does.
type terminals interface {
	Attach(ctx context.Context, c terminal.Console, in io.Reader, out io.Writer) error
}

// namespaces finds pods' network namespaces; package sandbox's Sandboxes does.
type namespaces interface {
	NetworkNamespace(ctx context.Context, sandboxID string) (string, error)
}

// Options are what Guests works with. All fields are needed.
type Options struct {
	Table      *table.Table
	Agents     *Agents
	Layout     layout.Layout
	Power      power
	Screens    screens
	Pauses     pauses
	Moves      moves
	Hotplugs   orders
	Dumps      orders
	Backups    orders
	Freezes    *Freezes
	Saves      orders
	Survey     orders
	Terminals  terminals
	Namespaces namespaces
	Logger     *slog.Logger
}

// Guests answers what users ask of running guests.
type Guests struct {
	table      *table.Table
	agents     *Agents
	controls   controls
	pauses     pauses
	freezes    *Freezes
	layout     layout.Layout
	terminals  terminals
	namespaces namespaces
	log        *slog.Logger
	inputs     inputs
	streams    shares

	consoleClients table.PerVM[*consoleClient]
	usbSlots       table.PerVM[*usbSlots]
	viewers        table.PerVM[*viewers]
	// vsocks connects to a port of the guest with a CID.
	vsocks func(cid, port uint32) (stream.Conn, error)
}

// New returns Guests.
func New(o Options) *Guests {
	g := &Guests{
		table: o.Table, agents: o.Agents, layout: o.Layout,
		controls: newControls(o),
		pauses:   o.Pauses, freezes: o.Freezes, terminals: o.Terminals, namespaces: o.Namespaces, log: o.Logger, vsocks: dialVSOCK, inputs: newInputs(), streams: newShares(),
	}
	g.consoleClients.New = func(*table.VM) *consoleClient { return &consoleClient{} }
	g.viewers.New = func(*table.VM) *viewers { return &viewers{} }
	g.usbSlots.New = func(v *table.VM) *usbSlots {
		return &usbSlots{used: make([]bool, len(g.layout.USBSockets(v.Record().ID)))}
	}
	return g
}

// Recover continues what an earlier shim process has promised to running guests. Call it
// once the table has the VMs. It does not wait.
func (g *Guests) Recover() { g.freezes.recover() }

// Running returns the whole id of a container that runs. For others it returns
// an error in containerd's words.
func (g *Guests) Running(id string) (string, error) {
	v, err := g.running(id)
	if err != nil {
		return "", err
	}
	return v.Record().ID, nil
}

func (g *Guests) running(id string) (*table.VM, error) {
	v, err := g.table.Find(id)
	if err != nil {
		return nil, err
	}
	switch v.Record().State {
	case record.Running:
		return v, nil
	case record.Exited:
		return nil, fmt.Errorf("container is in %s state", runtimeapi.ContainerState_CONTAINER_EXITED)
	case record.Unknown:
		return nil, g.table.Refusals.Of(v.Record().ID)
	}
	return nil, fmt.Errorf("container is in %s state", runtimeapi.ContainerState_CONTAINER_CREATED)
}

// RunsIn reports whether a VM runs in a sandbox, whose id is whole.
func (g *Guests) RunsIn(sandboxID string) bool {
	_, ok := g.table.RunningIn(sandboxID)
	return ok
}

// Attach joins a client and a guest's serial console, until the VM ends or the
// client leaves. A serial port knows no terminal size.
func (g *Guests) Attach(ctx context.Context, id string, s stream.Streams) error {
	v, err := g.running(id)
	if err != nil {
		return err
	}
	end, err := g.streams.begin(v)
	if err != nil {
		return err
	}
	defer end()
	return g.attach(ctx, v, s, "")
}

// attach joins a client and the console; a live client does not see what was printed before.
func (g *Guests) attach(ctx context.Context, v *table.VM, s stream.Streams, greeting string) error {
	id := v.Record().ID
	if v.Record().Spec.NoSerial {
		return fmt.Errorf("%w: VM container %q has no serial console: set autoattachSerialConsole: true", vmerrors.ErrInvalid,
			v.Record().Config.Value.GetMetadata().GetName())
	}
	out := io.Discard
	if s.Out != nil {
		out = s.Out
	}
	table.Logger(g.log, v.Record()).Debug("a client is attached to the console", "types", s.In != nil)
	return g.terminals.Attach(ctx, terminal.Console{
		Raw: g.layout.ConsoleFile(id), Socket: g.layout.ConsoleSocket(id), Ended: v.Exited(), Live: greeting != "", Greeting: greeting,
	}, s.In, out)
}

// Forward joins a client and a TCP port of a pod whose VM runs: the guest's, or
// if the guest does not listen there, another container's. VNC's port is the
// display's, if the VM has one.
func (g *Guests) Forward(ctx context.Context, sandboxID string, port uint16, client io.ReadWriteCloser) error {
	v, ok := g.table.RunningIn(sandboxID)
	if !ok {
		return errors.New("the pod's VM does not run any more: try again for its other containers")
	}
	end, err := g.streams.begin(v)
	if err != nil {
		return err
	}
	defer end()
	conn, err := g.dial(ctx, v, port)
	if err != nil {
		return err
	}
	ctx, cancel := during(ctx, v, conn)
	defer cancel()
	stream.Join(ctx, client, conn)
	return nil
}

// during returns a context that also ends with the VM. A guest that has left for another node
// answers no more on a connection, and closes none. Connections to the pod's other containers
// outlive the VM.
func during(ctx context.Context, v *table.VM, conn stream.Conn) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if tcp, ok := conn.(*net.TCPConn); ok && tcp.RemoteAddr().(*net.TCPAddr).IP.IsLoopback() {
		return ctx, cancel
	}
	go func() {
		select {
		case <-v.Exited():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// dial connects to a TCP port of a VM's pod, or to its display.
func (g *Guests) dial(ctx context.Context, v *table.VM, port uint16) (stream.Conn, error) {
	conn, err := g.dialPort(ctx, v, port)
	if err != nil {
		return nil, fmt.Errorf("VM container %q: %w", v.Record().Config.Value.GetMetadata().GetName(), err)
	}
	return conn, nil
}

func (g *Guests) dialPort(ctx context.Context, v *table.VM, port uint16) (stream.Conn, error) {
	r := v.Record()
	if r.Spec.Display && port == displayPort {
		return g.view(v, false)
	}
	netns, err := g.namespaces.NetworkNamespace(ctx, r.SandboxID)
	if err != nil {
		return nil, err
	}
	var guest []netip.Addr
	if r.Network != nil {
		guest = r.Network.GuestAddresses()
	}
	return netsetup.Dial(ctx, netns, guest, port)
}
