package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/console/terminal"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
)

// node is Guests with fakes of all that they reach.
type node struct {
	*Guests
	script   *vmtest.Script
	libvirt  *vmtest.Libvirt
	domains  *fakeDomains
	consoles *fakeTerminals
	tasks    *background.Tasks
	moves    *vmtest.Moves

	mu      sync.Mutex
	changed int      // how often something new was known of a guest
	asked   []string // the requests about the guest's users
}

func newNode(t *testing.T) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "guest-") // t.TempDir's paths are too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	s := &vmtest.Script{}
	n := &node{
		script: s, libvirt: vmtest.NewLibvirt(s), domains: &fakeDomains{}, consoles: &fakeTerminals{}, tasks: background.New(),
	}
	t.Cleanup(func() {
		n.tasks.Stop()
		_ = os.RemoveAll(dir)
	})
	vms := table.New(vmtest.NewStore(s, dir), 0, 10)
	l := layout.Layout{
		Folder: func(id string) string { return filepath.Join(dir, id) }, Consoles: dir, Agents: dir, Displays: filepath.Join(dir, "d"),
	}
	log := slog.New(slog.DiscardHandler)
	agents := NewAgents(l, fakePorts{n.libvirt.Lifecycle, n.libvirt.Observer}, n.tasks, log, func(*table.VM) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.changed++
	})
	n.moves = vmtest.NewMoves(s)
	n.Guests = New(Options{
		Table: vms, Agents: agents, Layout: l, Power: n.domains, Screens: n.domains, Pauses: n.domains, Moves: n.moves, Hotplugs: n.moves, Dumps: n.moves, Backups: n.moves, Freezes: NewFreezes(vms, agents), Saves: n.moves, Survey: n.moves, Terminals: n.consoles,
		Namespaces: vmtest.NewSandboxes(s, vms), Logger: log,
	})
	return n
}

// add enters a VM. Its id is short, since the paths of sockets are.
func (n *node) add(letter string, state record.State) *table.VM {
	r := record.Container{ID: strings.Repeat(letter, 8), SandboxID: "pod-" + letter, State: state}
	r.Config.Value = &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "vm"}}
	r.Sandbox.Value = &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod-" + letter, Namespace: "ns"}}
	r.Domain = record.Domain{UUID: "uuid-" + letter, UID: uint32(os.Getuid()), PID: 1}
	return n.table.Recover(r)
}

// serve answers as a guest's agent does: each command with the JSON of its name. It
// refuses other commands, and those whose answer begins with "once" from the second on. After "fails" comes an error.
func (n *node) serve(t *testing.T, v *table.VM, answers map[string]string) {
	t.Helper()
	n.serveWith(t, v, func(command string) (string, bool) {
		answer, known := answers[command]
		if first, once := strings.CutPrefix(answer, "once "); once {
			answer = first
			delete(answers, command)
		}
		return answer, known
	})
}

// serveWith answers with the JSON that a function returns for a command, and refuses
// commands that it does not know.
func (n *node) serveWith(t *testing.T, v *table.VM, answers func(command string) (string, bool)) {
	t.Helper()
	l, err := net.Listen("unix", n.layout.AgentSocket(v.Record().ID))
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n.speak(c, answers)
			c.Close()
		}
	})
	t.Cleanup(func() {
		l.Close()
		n.agents.Of(v).Port.Report(agent.Absent) // hangs up
		serving.Wait()
	})
	n.agents.Of(v).Port.Report(agent.Present)
}

func (n *node) speak(c net.Conn, answers func(command string) (string, bool)) {
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		var asked struct {
			Execute   string `json:"execute"`
			Arguments struct {
				ID int64 `json:"id"`
			} `json:"arguments"`
		}
		if json.Unmarshal([]byte(strings.TrimPrefix(line, "\xff")), &asked) != nil {
			return
		}
		if strings.Contains(line, "username") {
			n.mu.Lock()
			n.asked = append(n.asked, strings.TrimSpace(line))
			n.mu.Unlock()
		}
		answer, known := answers(asked.Execute)
		switch {
		case asked.Execute == "guest-sync-delimited":
			fmt.Fprintf(c, "\xff{\"return\": %d}\n", asked.Arguments.ID)
		case strings.HasPrefix(answer, "fails "):
			fmt.Fprintf(c, "{\"error\": {\"class\": \"GenericError\", \"desc\": %q}}\n", strings.TrimPrefix(answer, "fails "))
		case known:
			fmt.Fprintf(c, "{\"return\": %s}\n", answer)
		default:
			_, _ = io.WriteString(c, `{"error": {"class": "CommandNotFound", "desc": "disabled"}}`+"\n")
		}
	}
}

// fakeDomains notes what is done with domains.
type fakeDomains struct {
	done    []string
	err     error
	picture []byte
	paused  domain.Reason
}

func (f *fakeDomains) Paused(*table.VM) domain.Reason { return f.paused }

func (f *fakeDomains) do(what, uuid string) error {
	f.done = append(f.done, what+" "+uuid)
	return f.err
}

func (f *fakeDomains) Pause(_ context.Context, uuid string) error   { return f.do("pause", uuid) }
func (f *fakeDomains) Resume(_ context.Context, uuid string) error  { return f.do("resume", uuid) }
func (f *fakeDomains) Reset(_ context.Context, uuid string) error   { return f.do("reset", uuid) }
func (f *fakeDomains) Destroy(_ context.Context, uuid string) error { return f.do("destroy", uuid) }
func (f *fakeDomains) Reboot(_ context.Context, uuid string) error  { return f.do("reboot", uuid) }

func (f *fakeDomains) Screenshot(_ context.Context, uuid string) ([]byte, error) {
	return f.picture, f.do("screenshot", uuid)
}

// fakePorts are the parts of libvirt that agents need.
type fakePorts struct {
	*vmtest.Lifecycle
	*vmtest.Observer
}

// fakeTerminals echoes what a client types, or holds clients until their contexts end.
type fakeTerminals struct {
	last terminal.Console
	held bool
	// begun is called when a client that is held has come; may be nil.
	begun func()

	mu      sync.Mutex
	clients int
}

// waitFor waits for a number of clients that have come.
func (f *fakeTerminals) waitFor(clients int) {
	for {
		f.mu.Lock()
		came := f.clients
		f.mu.Unlock()
		if came >= clients {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (f *fakeTerminals) Attach(ctx context.Context, c terminal.Console, in io.Reader, out io.Writer) error {
	if f.held {
		f.mu.Lock()
		f.clients++
		f.last = c
		f.mu.Unlock()
		if f.begun != nil {
			f.begun()
		}
		<-ctx.Done()
		return nil
	}
	f.last = c
	if in == nil {
		return errors.New("nothing is typed")
	}
	_, err := io.Copy(out, in)
	return err
}
