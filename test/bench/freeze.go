package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/bench/report"
	"github.com/nodevirt/nodevirt/test/guest"
)

const (
	// frozenSize is how much a guest has written to its image's disk before copies of it are taken, and the size of
	// the disk that is backed up, in bytes.
	frozenSize = 10 << 30
	// frozenGoal is how long a guest may wait for its file system, in ms.
	frozenGoal = 250
	// frozenLimit is how long a freeze may last, for the shim.
	frozenLimit = "10s"

	frozenVMI = `{"domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "data", "disk": {"bus": "virtio"}}]}},
		"volumes": [{"name": "root", "containerDisk": {"image": ""}}, {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}`

	// probe is the guest's program, which writes to its file system again and again, and keeps how long that took at
	// most, in hundredths of a second.
	probe = `slowest=0
while [ -e /run/probing ]; do
	read -r from _ </proc/uptime
	echo >/data/probe
	read -r to _ </proc/uptime
	took=$((${to%%.*}${to#*.} - ${from%%.*}${from#*.}))
	[ $took -gt $slowest ] && slowest=$took
done
echo $slowest >/run/slowest
`
)

// frozen is a VM whose disks are copied while its file system is frozen.
type frozen struct {
	*rig
	vm, attachment *pod
	guest, volumes string // their containers
	folder         string // of the backups
	backups        int
}

// freeze measures, in the guest, how long its file system is frozen while a CSI driver with reflinks takes a
// snapshot, and while a backup begins.
func (r *rig) freeze(ctx context.Context) (s report.Section, err error) {
	s.Title = fmt.Sprintf("How long a guest's file system is frozen for a copy of a disk of %d GiB", frozenSize>>30)
	s.Notes = []string{
		"The guest writes again and again; the figure is its longest write.",
		"A snapshot: freeze, a reflink of the overlay that the guest has filled, thaw. A backup: until QEMU has begun.",
	}
	f, err := r.frozenGuest(ctx)
	if f != nil {
		defer func() { err = errors.Join(err, f.remove(context.WithoutCancel(ctx))) }()
	}
	if err != nil {
		return s, err
	}
	times, err := gaugeTurns(ctx, r.diskRounds(),
		gauge{"freeze and thaw alone", f.slowest(func(ctx context.Context) error { return f.whileFrozen(ctx, nil) })},
		gauge{"snapshot", f.slowest(func(ctx context.Context) error { return f.whileFrozen(ctx, f.reflink) })},
		gauge{"backup", f.slowest(f.backUp)})
	if err != nil {
		return s, err
	}
	for _, t := range times {
		row := value(t.Of, t)
		if row.Name != times[0].Of {
			row.Goal = frozenGoal
		}
		s.Rows = append(s.Rows, row)
	}
	return s, nil
}

// frozenGuest boots a guest and has it fill its image's disk. What was made is returned with an error, too.
func (r *rig) frozenGuest(ctx context.Context) (*frozen, error) {
	image, err := r.wideGuest(ctx)
	if err != nil {
		return nil, err
	}
	busybox, err := r.busybox(ctx)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(r.Dir(), "data")
	f := &frozen{rig: r, folder: filepath.Join(r.Dir(), "backups")}
	for _, dir := range []string{data, f.folder} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
	}
	disk := filepath.Join(data, "disk.img")
	if err := errors.Join(os.WriteFile(disk, nil, 0o600), os.Truncate(disk, frozenSize)); err != nil {
		return nil, err
	}
	if f.vm, err = r.annotatedPod(ctx, "frozen", "vm", vmspec.AnnotationVMI, frozenVMI); err != nil {
		return f, err
	}
	f.vm.memory, f.vm.mounts = 256<<20, []*cri.Mount{{ContainerPath: "/volumes/data", HostPath: data}}
	if f.guest, err = f.vm.run(ctx, "guest", image); err != nil {
		return f, err
	}
	if f.attachment, err = r.annotatedPod(ctx, "backups", "", order.Annotation, f.vm.config.Metadata.Uid); err != nil {
		return f, err
	}
	f.attachment.mounts = []*cri.Mount{{ContainerPath: "/volumes/backups", HostPath: f.folder}}
	if f.volumes, err = f.attachment.run(ctx, "volumes", busybox, "sleep", "1000000"); err != nil {
		return f, err
	}
	if err := f.vm.answers(ctx, f.guest); err != nil {
		return f, err
	}
	return f, f.vm.sh(ctx, f.guest, fmt.Sprintf(fill, frozenSize>>26))
}

// fill writes so many times 64 MiB behind the guest's partition, of bytes that no disk takes for zeros, and its probe.
const fill = `set -e
mkdir /filled
mount -t tmpfs -o size=100%% filled /filled
yes nodevirt | head -c 67108864 >/filled/file
n=0
while [ $n -lt %d ]; do
	dd if=/filled/file of=/dev/vda bs=1M seek=$((1024 + 64 * n)) conv=notrunc 2>/dev/null
	n=$((n + 1))
done
sync
umount /filled
grep -q ' /data ext4 ' /proc/mounts
cat >/run/probe <<'END'
` + probe + "END\n"

// wideGuest is an image with a guest whose disk has room for what it writes.
func (r *rig) wideGuest(ctx context.Context) (ref string, err error) {
	disk, err := guest.TinyWithAgent(ctx, r.GuestOptions())
	if err != nil {
		return "", err
	}
	wide := filepath.Join(r.Dir(), "wide.qcow2")
	if err := qemuImg(ctx, "convert", "-f", "qcow2", "-O", "qcow2", disk, wide); err != nil {
		return "", err
	}
	if err := qemuImg(ctx, "resize", "-q", "-f", "qcow2", wide, strconv.Itoa(frozenSize+2<<30)); err != nil {
		return "", err
	}
	ref, err = r.pushDisk(ctx, "wide:1", wide)
	return ref, errors.Join(err, os.Remove(wide))
}

// annotatedPod runs a pod with an annotation.
func (r *rig) annotatedPod(ctx context.Context, name, handler, annotation, text string) (*pod, error) {
	config, err := r.podConfig(name)
	if err != nil {
		return nil, err
	}
	if config.Annotations == nil {
		config.Annotations = map[string]string{}
	}
	config.Annotations[annotation] = text
	return runPod(ctx, r.shim, config, handler)
}

func (f *frozen) remove(ctx context.Context) error {
	var errs []error
	for _, p := range []*pod{f.attachment, f.vm} {
		if p != nil {
			errs = append(errs, p.remove(ctx))
		}
	}
	return errors.Join(errs...)
}

// slowest returns a turn that has the guest write while do does something: the longest write, in ms.
func (f *frozen) slowest(do func(context.Context) error) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		const begin = "rm -f /run/slowest; : >/run/probing; sh /run/probe </dev/null >/dev/null 2>&1 &"
		if err := f.vm.sh(ctx, f.guest, begin); err != nil {
			return 0, err
		}
		time.Sleep(200 * time.Millisecond) // so that it writes
		if err := do(ctx); err != nil {
			return 0, err
		}
		reply, err := f.exec(ctx, "sh", "-c", "rm /run/probing; while [ ! -s /run/slowest ]; do usleep 10000; done; cat /run/slowest")
		if err != nil {
			return 0, err
		}
		hundredths, err := strconv.ParseFloat(strings.TrimSpace(reply), 64)
		return hundredths * 10, err
	}
}

// exec runs a command in the guest, or a control of the VM, and returns its output.
func (f *frozen) exec(ctx context.Context, command ...string) (string, error) {
	reply, err := f.shim.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: f.guest, Cmd: command})
	if err == nil && reply.ExitCode != 0 {
		err = fmt.Errorf("%q: code %d: %s", command, reply.ExitCode, reply.Stderr)
	}
	return string(reply.GetStdout()), err
}

// whileFrozen freezes the guest, does something, and thaws it.
func (f *frozen) whileFrozen(ctx context.Context, do func() error) error {
	_, err := f.exec(ctx, "nodevirt.io/freeze", frozenLimit)
	if err != nil {
		return err
	}
	if do != nil {
		err = do()
	}
	_, thawed := f.exec(ctx, "nodevirt.io/unfreeze")
	return errors.Join(err, thawed)
}

// reflink copies the overlay, as a driver on this file system does that takes a snapshot.
func (f *frozen) reflink() error {
	from, err := os.Open(filepath.Join(f.Dir(), "nodevirt/containers", f.guest, "disk.qcow2"))
	if err != nil {
		return err
	}
	defer from.Close()
	copied, err := os.CreateTemp(f.Dir(), "snapshot-*.qcow2")
	if err != nil {
		return err
	}
	defer copied.Close()
	err = unix.IoctlFileClone(int(copied.Fd()), int(from.Fd()))
	var s unix.Stat_t
	if err == nil {
		err = unix.Fstat(int(copied.Fd()), &s)
	}
	if err == nil && s.Blocks*512 < frozenSize {
		err = fmt.Errorf("the overlay has %d MiB; the guest wrote %d", s.Blocks*512>>20, frozenSize>>20)
	}
	return errors.Join(err, os.Remove(copied.Name()))
}

// backUp makes a quiesced backup of the other disk, and removes it.
func (f *frozen) backUp(ctx context.Context) error {
	f.backups++
	name := fmt.Sprintf("backup-%d", f.backups)
	text, err := json.Marshal(order.BackupFiles{
		Name: name, Volume: "backups", Container: f.volumes, Folder: name, Checkpoint: name, Quiesce: true,
		Disks: []order.BackupFile{{Disk: "data", File: "data.qcow2"}},
	})
	if err != nil {
		return err
	}
	b := order.Backup{State: order.BackupWriting}
	for b.State == order.BackupWriting {
		reply, err := f.exec(ctx, "nodevirt.io/"+order.BackUp, string(text))
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(reply), &b); err != nil {
			return err
		}
	}
	if b.State != order.BackupCompleted || b.Quiesce != order.QuiesceSucceeded {
		return fmt.Errorf("the backup: %+v", b)
	}
	return os.RemoveAll(filepath.Join(f.folder, name))
}
