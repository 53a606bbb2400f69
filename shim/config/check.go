package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/shim/virtiofs"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/shim/witness"
)

// minLogLimit is more than a console appends to its log at once.
const minLogLimit = 4 << 20

// maxSocket bounds the length of a unix socket's path (unix(7)).
const maxSocket = 107

type field struct{ name, value string }

// checkPrograms checks the programs of the node on which this program runs.
func (c Config) checkPrograms() error {
	errs := []error{checkEmulator("vm.emulator", c.VM.Emulator)}
	for arch, path := range c.VM.Foreign {
		errs = append(errs, checkEmulator("vm.foreign_emulators."+arch, path))
	}
	return errors.Join(errs...)
}

// checkEmulator returns an error if the shim would not see by a process's program that it is a guest. The kernel names the
// program behind all links, so a link's name proves nothing. A program that is not installed is judged when it is there and
// the shim starts.
func checkEmulator(name, path string) error {
	program, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, dangling := os.Lstat(path); dangling != nil {
			program, err = path, nil
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w: name the program itself", name, err)
	}
	if !witness.IsEmulator(program) {
		return fmt.Errorf("%s: %q does not have QEMU's name: the shim finds guests by the program that they execute; "+
			"name it qemu-system-ARCHITECTURE or qemu-kvm", name, program)
	}
	script, err := isScript(program)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if script {
		return fmt.Errorf("%s: %q is a script, and the shim finds guests by the program that they execute: name the program that it executes",
			name, program)
	}
	return nil
}

// isScript reports whether another program executes a file. A file that is not there is none.
func isScript(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	start := make([]byte, 2)
	if _, err := io.ReadFull(f, start); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return string(start) == "#!", nil
}

func (c Config) check() error {
	var errs []error
	for _, f := range []field{
		{"listen", c.Listen}, {"root", c.Root}, {"run", c.Run}, {"containerd.address", c.Containerd.Address},
		{"libvirt.run", c.Libvirt.Run}, {"libvirt.log", c.Libvirt.Log}, {"vm.emulator", c.VM.Emulator}, {"vm.resolv_conf", c.VM.ResolvConf},
		{"iscsi.socket", c.ISCSI.Socket},
	} {
		if !filepath.IsAbs(f.value) {
			errs = append(errs, fmt.Errorf("%s: %q is not an absolute path", f.name, f.value))
		}
	}
	for arch, path := range c.VM.Foreign {
		if _, known := foreign()[arch]; !known {
			errs = append(errs, fmt.Errorf("vm.foreign_emulators: %q is none of %s", arch, strings.Join(slices.Sorted(maps.Keys(foreign())), ", ")))
		}
		if !filepath.IsAbs(path) {
			errs = append(errs, fmt.Errorf("vm.foreign_emulators.%s: %q is not an absolute path", arch, path))
		}
	}
	for _, f := range []field{
		{"containerd.namespace", c.Containerd.Namespace}, {"containerd.snapshotter", c.Containerd.Snapshotter},
		{"libvirt.uri", c.Libvirt.URI}, {"tools.dnsmasq", c.Tools.Dnsmasq}, {"tools.qemu_img", c.Tools.QemuImg},
		{"tools.storage_daemon", c.Tools.StorageDaemon}, {"tools.swtpm", c.Tools.Swtpm},
	} {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("%s: must not be empty", f.name))
		}
	}
	if k := c.Kubernetes.Kubeconfig; k != "" && !filepath.IsAbs(k) {
		errs = append(errs, fmt.Errorf("kubernetes.kubeconfig: %q is not an absolute path", k))
	}
	if len(c.Listen) > maxSocket {
		errs = append(errs, fmt.Errorf("listen: %q is too long for a socket: %d bytes at the most", c.Listen, maxSocket))
	}
	// The path of a console's socket is RUN/consoles/ID.sock.
	if room := maxSocket - len("/consoles/") - 64 - len(".sock"); len(c.Run) > room {
		errs = append(errs, fmt.Errorf("run: %q is too long for the sockets below it: %d bytes at the most", c.Run, room))
	}
	if len(c.ISCSI.Socket) > maxSocket-len(".0") {
		errs = append(errs, fmt.Errorf("iscsi.socket: %q is too long for a socket: %d bytes at the most", c.ISCSI.Socket, maxSocket-len(".0")))
	}
	if _, err := c.ISCSI.Portal(); err != nil {
		errs = append(errs, err)
	}
	if c.Handler == "" || c.Handler == c.Containerd.SandboxHandler {
		errs = append(errs, errors.New("handler: has to be a name other than containerd.sandbox_handler"))
	}
	if err := c.Metrics.check(); err != nil {
		errs = append(errs, fmt.Errorf("metrics.address: %w", err))
	}
	for _, p := range c.Tracing.Options().Problems() {
		errs = append(errs, fmt.Errorf("tracing.%s: %w", p.Field, p.Err))
	}
	switch c.VM.Accelerator {
	case "auto", "kvm", "tcg":
	default:
		errs = append(errs, fmt.Errorf("vm.accelerator: %q is none of auto, kvm, tcg", c.VM.Accelerator))
	}
	switch c.VM.Landlock {
	case LandlockAuto, LandlockRequire, LandlockOff:
	default:
		errs = append(errs, fmt.Errorf("vm.landlock: %q is none of auto, require, off", c.VM.Landlock))
	}
	// UnmarshalText does not check a quantity that is written as a number.
	if c.VM.OverheadMemory < 0 || c.VM.OverheadMemory > maxPlain {
		errs = append(errs, fmt.Errorf("vm.overhead_memory: %d is not between 0 and 1Ti", c.VM.OverheadMemory))
	}
	if c.VM.LogLimit != 0 && (c.VM.LogLimit < minLogLimit || c.VM.LogLimit > maxPlain) {
		errs = append(errs, fmt.Errorf("vm.log_limit: %d is neither 0 nor between 4Mi and 1Ti", c.VM.LogLimit))
	}
	if _, err := vmspec.ParseMode(c.Disks.Mode); err != nil {
		errs = append(errs, fmt.Errorf("disks.mode: %w", err))
	}
	if c.Disks.GiveUp < Duration(time.Second) {
		errs = append(errs, errors.New("disks.give_up: must be a second or more"))
	}
	if c.Disks.CacheLimit < 0 || c.Disks.Reserve < 0 {
		errs = append(errs, errors.New("disks.cache_limit, disks.reserve: must not be negative"))
	}
	if a, err := netip.ParseAddrPort(c.Stream.Address); err != nil || !a.Addr().IsLoopback() {
		errs = append(errs, fmt.Errorf("stream.address: %q is no address and port on loopback, such as 127.0.0.1:0: "+
			"only the kubelet and crictl should reach it", c.Stream.Address))
	}
	if c.ISCSI.Timeout != 0 && c.ISCSI.Timeout < Duration(time.Second) {
		errs = append(errs, errors.New("iscsi.timeout: must be a second or more, or 0 to wait without an end"))
	}
	if c.Stream.IdleTimeout < 0 {
		errs = append(errs, errors.New("stream.idle_timeout: must not be negative"))
	}
	if c.VM.MaxDiskSize < minDiskSize || c.VM.MaxDiskSize > maxDiskSize {
		errs = append(errs, fmt.Errorf("vm.max_disk_size: %d is not between 1Mi and 2Pi", c.VM.MaxDiskSize))
	}
	if c.VM.UIDBase < 1000 || c.VM.UIDCount == 0 || uint64(c.VM.UIDBase)+uint64(c.VM.UIDCount) > 1<<32-2 {
		errs = append(errs, errors.New("vm.uid_base, vm.uid_count: not a range of unprivileged user ids"))
	} else if c.VM.UIDBase <= virtiofs.LastID && c.VM.UIDBase+c.VM.UIDCount > virtiofs.FirstID {
		errs = append(errs, fmt.Errorf("vm.uid_base, vm.uid_count: %d to %d overlaps the ids of file systems, %d to %d; set a lower vm.uid_base",
			c.VM.UIDBase, c.VM.UIDBase+c.VM.UIDCount-1, virtiofs.FirstID, virtiofs.LastID))
	}
	return errors.Join(errs...)
}

// check refuses addresses other than loopback: the metrics describe VMs, and the
// endpoint has no authentication.
func (m Metrics) check() error {
	if m.Address == "" {
		return nil
	}
	if filepath.IsAbs(m.Address) {
		if len(m.Address) > maxSocket {
			return fmt.Errorf("%q is too long for a socket: %d bytes at the most", m.Address, maxSocket)
		}
		return nil
	}
	a, err := netip.ParseAddrPort(m.Address)
	if err != nil || !a.Addr().IsLoopback() || a.Port() == 0 {
		return fmt.Errorf("%q is neither a socket's absolute path nor an address of loopback such as 127.0.0.1:9747", m.Address)
	}
	return nil
}
