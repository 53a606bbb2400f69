//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/test/wait"
)

// virtual is the VM that virtctl is tried with.
const virtual = "virtual"

// virtctl tries each command, and keeps the results for docs/virtctl.md.
type virtctl struct {
	t       *testing.T
	working []string // commands that work
	refuses []string // commands that do not, as the page lists them
	seen    map[string]bool
}

// run runs a command without a terminal.
func (v *virtctl) run(stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(v.t.Context(), patience)
	defer cancel()
	cmd := suite.VirtctlCommand(ctx, args...)
	var out, complaint bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("virtctl %s: %w: %s%s", strings.Join(args, " "), err, complaint.Bytes(), out.Bytes())
	}
	return out.String(), nil
}

// used notes a command that works, as a test has seen.
func (v *virtctl) used(command string) {
	v.working = append(v.working, command)
	v.seen[strings.Fields(command)[0]] = true
}

// works runs a command, wants a text in what it says, and returns all of that.
func (v *virtctl) works(command, want string) string {
	v.t.Helper()
	out, err := v.run("", strings.Fields(command)...)
	if err != nil || !strings.Contains(out, want) {
		v.t.Errorf("%s: %v: %q; want %q", command, err, out, want)
	}
	v.used(command)
	return out
}

// refused runs a command that must fail, and records its output.
func (v *virtctl) refused(command string, want string) {
	v.t.Helper()
	out, err := v.run("", strings.Fields(command)...)
	if err == nil {
		v.t.Errorf("%s: is not refused: %q", command, out)
		return
	}
	text := refusal(err.Error())
	if !strings.Contains(text, want) {
		v.t.Errorf("%s: is refused with %q; want %q", command, err, want)
	}
	v.refuses = append(v.refuses, wrapped(fmt.Sprintf("- `%s` is refused: %s", command, text)))
	v.seen[strings.Fields(command)[0]] = true
}

// wrapped is an item of a list in lines as pages have them.
func wrapped(item string) string {
	const width = 100
	var text strings.Builder
	column := 0
	for i, word := range strings.Fields(item) {
		switch {
		case i == 0:
		case column+1+len(word) > width:
			text.WriteString("\n  ")
			column = 2
		default:
			text.WriteString(" ")
			column++
		}
		text.WriteString(word)
		column += len(word)
	}
	return text.String()
}

// refusal is the sentence in virtctl's complaint: not its usage, and without what differs each time.
func refusal(complaint string) string {
	_, complaint, _ = strings.Cut(complaint, "exit status 1: ")
	line, _, _ := strings.Cut(strings.TrimSpace(complaint), "\n")
	line = regexp.MustCompile(`^(\{.*"msg":"|Error: |error: )`).ReplaceAllString(line, "")
	return strings.TrimSpace(line)
}

// TestVirtctl drives a VM with KubeVirt's own client, unmodified, with each command that it has.
func TestVirtctl(t *testing.T) {
	t.Parallel()
	v := &virtctl{t: t, seen: map[string]bool{}}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, "describe", "vm,vmi", virtual)
			log, _ := suite.Kubectl(ctx, "logs", "--namespace=nodevirt", "--selector=app.kubernetes.io/component=controller", "--tail=60")
			t.Logf("%s\n%s", about, log)
		}
		for _, kind := range []string{"vm", "service"} {
			if _, err := suite.Kubectl(ctx, "delete", kind, virtual, "--ignore-not-found"); err != nil {
				t.Error(err)
			}
		}
	})
	assert.NilError(t, suite.Apply(t.Context(), fmt.Sprintf(`apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: %s}
spec:
  runStrategy: Manual
  template:
    metadata:
      labels: {app: %[1]s}
    spec:
      terminationGracePeriodSeconds: 60
      domain:
        memory: {guest: 128Mi}
        devices:
          autoattachGraphicsDevice: true
          clientPassthrough: {}
          disks: [{name: boot, disk: {bus: virtio}}]
          interfaces: [{name: default, masquerade: {}}]
      networks: [{name: default, pod: {}}]
      volumes: [{name: boot, containerDisk: {image: "%s"}}]
`, virtual, suite.agent)))
	ssh := v.startServer() // it boots meanwhile
	v.lifecycle()
	v.doors()
	v.buttons()
	v.objects()
	v.moves()
	v.unsupported()
	ssh.works()
	v.complete()
	v.page()
}

// state waits for what kubectl get vm prints of the VM.
func (v *virtctl) state(want string) {
	v.t.Helper()
	assert.NilError(v.t, suite.WaitFor(v.t.Context(), "vm/"+virtual, "jsonpath={.status.printableStatus}="+want))
}

func (v *virtctl) agent() {
	v.t.Helper()
	assert.NilError(v.t, suite.WaitFor(v.t.Context(), "vmi/"+virtual, "condition=AgentConnected"))
}

// boot identifies the guest's boot.
func (v *virtctl) boot() string {
	v.t.Helper()
	return answer(v.t, kubectl(v.t, "get", "vmi", virtual, "-o", "jsonpath={.status.interfaces[0].ipAddress}")).BootID
}

func (v *virtctl) lifecycle() {
	v.t.Helper()
	v.works("start "+virtual, "VM virtual was scheduled to start")
	v.state("Running")
	v.refused("start "+virtual, "VM is already running")
	v.works("stop "+virtual, "VM virtual was scheduled to stop")
	v.state("Stopped")
	v.refused("stop "+virtual, "VM is not running")
	v.works("start --dry-run "+virtual, "Dry Run execution")
	v.works("start --paused "+virtual, "VM virtual was scheduled to start")
	v.state("Paused")
	if _, err := v.run("", "unpause", "vm", virtual); err != nil {
		v.t.Fatal(err)
	}
	v.state("Running")
	first := v.boot()
	v.works("restart "+virtual, "VM virtual was scheduled to restart")
	v.another(first, "after a restart")
	v.agent()
}

// another waits for the guest to have booted again, up to its name.
func (v *virtctl) another(before, when string) {
	v.t.Helper()
	wait.Success(v.t, "another boot "+when, func(ctx context.Context) error {
		ip, err := suite.Kubectl(ctx, "get", "vmi", virtual, "-o", "jsonpath={.status.interfaces[0].ipAddress}")
		if err != nil || ip == "" {
			return fmt.Errorf("address %q, %w", ip, err)
		}
		page, err := ask(ctx, ip, "/cgi-bin/info")
		if err == nil && strings.Contains(page, before) {
			err = fmt.Errorf("still boot %s", before)
		}
		return err
	})
	v.boot()
}

func (v *virtctl) doors() {
	v.t.Helper()
	console := startOn(v.t, suite.VirtctlCommand, "console", virtual)
	console.Until("echo $((40 + 2))-answer\n", "42-answer")
	v.used("console " + virtual)

	for _, kind := range []string{"vmi/", "vm/"} {
		pipe := startOn(v.t, suite.VirtctlCommand, "port-forward", "--stdio", kind+virtual, "80")
		pipe.Types("GET / HTTP/1.0\r\n\r\n") // more than one request would be refused, and the answer be lost
		pipe.Until("", "ip=10.0.2.2")
		v.used("port-forward --stdio " + kind + virtual + " 80")
	}
	forward := startOn(v.t, suite.VirtctlCommand, "port-forward", "vmi/"+virtual, "18080:80")
	forward.Until("", "18080")
	wait.Success(v.t, "the forwarded port", func(ctx context.Context) error {
		page, err := suite.Control().Fetch(ctx, "GET", "http://127.0.0.1:18080/", "")
		if err == nil && !strings.Contains(page, "ip=10.0.2.2") {
			err = fmt.Errorf("page %q", page)
		}
		return err
	})
	v.used("port-forward vmi/" + virtual + " 18080:80")

	vnc := startOn(v.t, suite.VirtctlCommand, "vnc", "--proxy-only", "--port=15900", virtual)
	vnc.Until("", "15900")
	var display net.Conn
	wait.Success(v.t, "the display", func(ctx context.Context) (err error) {
		display, err = suite.Control().Dial(ctx, "tcp", "127.0.0.1:15900")
		return err
	})
	defer func() { _ = display.Close() }()
	assert.NilError(v.t, display.SetDeadline(time.Now().Add(patience)))
	hello := make([]byte, 12)
	if _, err := io.ReadFull(display, hello); err != nil || string(hello) != "RFB 003.008\n" {
		v.t.Errorf("the display says %q, %v", hello, err)
	}
	v.used("vnc --proxy-only " + virtual)
	picture, err := v.run("", "vnc", "screenshot", "--file=-", virtual)
	if _, decodeErr := png.Decode(strings.NewReader(picture)); err != nil || decodeErr != nil {
		v.t.Errorf("screenshot: %v, %v, %.80q", err, decodeErr, picture)
	}
	v.used("vnc screenshot --file=- " + virtual)

	v.usbredir()

	v.works("guestosinfo "+virtual, `"hostname": "`+virtual+`"`)
	v.works("userlist "+virtual, `"items"`)
	v.works("fslist "+virtual, `"items"`)
}

func (v *virtctl) buttons() {
	v.t.Helper()
	v.works("pause vmi "+virtual, "VMI virtual was scheduled to pause")
	assert.NilError(v.t, suite.WaitFor(v.t.Context(), "vmi/"+virtual, "condition=Paused"))
	v.refused("pause vmi "+virtual, "VMI is already paused")
	v.state("Paused")
	v.works("unpause vm "+virtual, "VMI virtual was scheduled to unpause")
	v.state("Running")
	for _, command := range []string{"soft-reboot ", "reset "} {
		before := v.boot()
		v.works(command+virtual, "VMI virtual was scheduled to")
		v.another(before, "after "+command)
	}
}

func (v *virtctl) objects() {
	v.t.Helper()
	v.works("expose vmi "+virtual+" --name="+virtual+" --port=80", "Service virtual successfully created")
	asked(v.t, virtual, "/", "ip=10.0.2.2")
	v.works("expand --vm="+virtual, "kind: VirtualMachine")
	manifest := v.works("create vm --name=made --memory=128Mi --volume-containerdisk=src:some/disk:1", "kind: VirtualMachine")
	file := filepath.Join(v.t.TempDir(), "vm.yaml")
	assert.NilError(v.t, os.WriteFile(file, []byte(manifest), 0o600))
	if _, err := suite.Kubectl(v.t.Context(), "apply", "--dry-run=server", "-f", file); err != nil {
		v.t.Errorf("what virtctl creates: %v", err)
	}
	v.sized()
	v.works("version", "Server Version")
	v.works("completion bash", "virtctl")
	v.works("help", "virtctl controls virtual machine related operations")
}

// sized creates a VM of an instance type, and lets virtctl expand it.
func (v *virtctl) sized() {
	v.t.Helper()
	assert.NilError(v.t, suite.Apply(v.t.Context(), `{"apiVersion": "instancetype.kubevirt.io/v1beta1",
		"kind": "VirtualMachineClusterInstancetype", "metadata": {"name": "small"},
		"spec": {"cpu": {"guest": 3}, "memory": {"guest": "96Mi"}}}`))
	defer func() { kubectl(v.t, "delete", "vmclusterinstancetype", "small") }()
	manifest := v.works("create vm --name=sized --instancetype=small --volume-containerdisk=src:some/disk:1", "name: small")
	file := filepath.Join(v.t.TempDir(), "sized.yaml")
	assert.NilError(v.t, os.WriteFile(file, []byte(manifest), 0o600))
	if _, err := suite.Kubectl(v.t.Context(), "apply", "--dry-run=server", "-f", file); err != nil {
		v.t.Errorf("what virtctl creates: %v", err)
	}
	out, err := v.run("", "expand", "--file="+file)
	if err != nil || !strings.Contains(out, "sockets: 3") || !strings.Contains(out, "guest: 96Mi") || strings.Contains(out, "instancetype") {
		v.t.Errorf("expand: %v: %s", err, out)
	}
	v.used("expand --file=vm.yaml")
}

// moves begins a migration and ends it.
func (v *virtctl) moves() {
	v.t.Helper()
	v.works("migrate "+virtual, "was scheduled to migrate")
	v.works("migrate-cancel "+virtual, "was scheduled to migrate-cancel")
	wait.Until(v.t, "the migration is gone", func() bool { return kubectl(v.t, "get", "vmim", "-o", "name") == "" })
	v.state("Running")
}

// usbredir connects to a slot for USB devices. In the protocol usbredir a side begins with a hello: three numbers of
// four bytes, and its program's name.
func (v *virtctl) usbredir() {
	v.t.Helper()
	const command, said, numbers = "usbredir --no-launch " + virtual, "client at:", 12
	client := startOn(v.t, suite.VirtctlCommand, strings.Fields(command)...)
	_, address, _ := strings.Cut(client.Until("", said), said)
	conn, err := suite.Control().Dial(v.t.Context(), "tcp", strings.TrimSpace(address))
	assert.NilError(v.t, err)
	defer func() { _ = conn.Close() }()
	assert.NilError(v.t, conn.SetDeadline(time.Now().Add(patience)))
	const name = "qemu usb-redir guest"
	hello := make([]byte, numbers+len(name))
	if _, err := io.ReadFull(conn, hello); err != nil || string(hello[numbers:]) != name {
		v.t.Errorf("the machine says %q, %v", hello, err)
	}
	v.used(command)
}

func (v *virtctl) unsupported() {
	v.t.Helper()
	assert.NilError(v.t, suite.Apply(v.t.Context(), `{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "more"},
		"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}}`))
	defer func() { kubectl(v.t, "delete", "pvc", "more") }()
	v.works("addvolume "+virtual+" --volume-name=more --dry-run", "Successfully submitted add volume request")
	v.works("objectgraph "+virtual, `"kind": "VirtualMachine"`)
	v.refused("removevolume "+virtual+" --volume-name=boot", "is not hotpluggable")
	v.refused("memory-dump get "+virtual+" --claim-name=none", `"none" not found`)
	v.refused("guestfs claim", "")
	v.works("vmexport create "+virtual+" --vm="+virtual, "")
	kubectl(v.t, "get", "vmexport", virtual)
	v.works("vmexport delete "+virtual, "")
	v.refused("image-upload dv disk --size=1Gi --image-path=/etc/hostname", "")
	v.works("adm log-verbosity --all", "virt-controller=")
	v.refused("permitted-devices", "")
}

// complete wants each of virtctl's own commands on the page.
func (v *virtctl) complete() {
	v.t.Helper()
	out, err := v.run("", "--help")
	assert.NilError(v.t, err)
	_, list, _ := strings.Cut(out, "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	var missing []string
	for line := range strings.Lines(list) {
		if name := strings.Fields(line)[0]; !v.seen[name] {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		v.t.Errorf("commands that are not tried: %v", missing)
	}
}

// page compares the results with docs/virtctl.md.
func (v *virtctl) page() {
	v.t.Helper()
	top, err := checkout()
	assert.NilError(v.t, err)
	file := filepath.Join(top, "docs", "virtctl.md")
	text, err := os.ReadFile(file)
	assert.NilError(v.t, err)
	const title = "## The commands\n\n"
	head, _, _ := strings.Cut(string(text), title)
	want := head + title + "These commands work:\n\n```text\n" + strings.Join(v.working, "\n") + "\n```\n\n" +
		strings.Join(v.refuses, "\n") + "\n"
	if golden.FlagUpdate() {
		assert.NilError(v.t, os.WriteFile(file, []byte(want), 0o644))
	} else if diff := cmp.Diff(want, string(text)); diff != "" {
		v.t.Errorf("docs/virtctl.md (-what happened +what it says); -update writes it:\n%s", diff)
	}
}
