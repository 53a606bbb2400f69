package lifecycle_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// loses are the ways in which a node loses the record of a guest that runs.
func loses() map[string]func(n *node, r record.Container) {
	return map[string]func(n *node, r record.Container){
		"the record is gone":     func(n *node, r record.Container) { n.store.Lose(r.ID) },
		"the root is another":    func(n *node, _ record.Container) { n.store.LoseAll() },
		"the record cannot read": func(n *node, r record.Container) { n.store.Damage(r.ID, errors.New("it is truncated")) },
		"the record is an old one": func(n *node, r record.Container) {
			r.State, r.Unclean, r.Domain.PID = record.Created, false, 0
			_ = n.store.PutContainer(r)
		},
	}
}

// TestLostRecord: of a guest that runs nothing is deleted, released or ended, whatever became of its record. It is
// shown, its pod cannot be removed, and it goes once it has ended.
func TestLostRecord(t *testing.T) {
	for name, lose := range loses() {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				id := n.started(t, "pod")
				r := n.rec(t, id)
				sandbox, _ := n.table.Sandbox(r.SandboxID)
				overlay := filepath.Join(n.store.ContainerDir(id), "disk.qcow2")
				must(t, os.WriteFile(overlay, nil, 0o600))
				must(t, os.WriteFile(n.layout.ConsoleSocket(id), nil, 0o600))
				n.end()
				lose(n, r)
				n.join()
				n.sandboxes.There = map[string]record.Sandbox{r.Domain.Name: sandbox}
				must(t, n.Recover(t.Context()))
				n.run(t)
				time.Sleep(time.Hour)

				v, err := n.table.Find(id)
				must(t, err)
				now := v.Record()
				if now.State != record.Unknown || now.Reason != "RecordRefused" || !strings.Contains(now.Message, `"virsh shutdown `+r.Domain.Name+`"`) ||
					now.SandboxID != r.SandboxID || now.Config.Value.GetMetadata().GetName() == "" || now.Domain.PID != r.Domain.PID {
					t.Errorf("it is shown as %s, %q, %q in sandbox %q", now.State, now.Reason, now.Message, now.SandboxID)
				}
				_, created := n.Create(t.Context(), r.SandboxID, request(1))
				for call, err := range map[string]error{
					"stop": n.Stop(t.Context(), id, 0), "remove": n.Remove(t.Context(), id),
					"stop pod": n.StopIn(t.Context(), r.SandboxID), "remove pod": n.RemoveIn(t.Context(), r.SandboxID),
				} {
					if !errors.Is(err, vmerrors.ErrRecord) || !strings.Contains(err.Error(), "virsh destroy") {
						t.Errorf("%s: %v", call, err)
					}
				}
				if !errors.Is(created, vmerrors.ErrExists) {
					t.Errorf("another VM in its pod: %v", created)
				}
				if n.network.Server(id) == 0 || !strings.Contains(strings.Join(n.images.Left(), " "), id) || !n.attached(id) ||
					n.libvirt.Status(r.Domain.UUID) != domain.StatusRunning {
					t.Error("parts of a guest that runs were removed")
				}
				for _, path := range []string{overlay, n.layout.ConsoleSocket(id)} {
					if _, err := os.Stat(path); err != nil {
						t.Error(err)
					}
				}

				n.script.Reset()
				n.libvirt.End(r.Domain.UUID, domain.ReasonShutdown)
				time.Sleep(time.Hour)
				if strings.Contains(name, "cannot read") || strings.Contains(name, "old one") {
					return // its record stays until the administrator decides
				}
				if n.table.Knows(id) || n.libvirt.Status(r.Domain.UUID) != "" || n.table.Refusals.Any() || n.attached(id) {
					t.Error("it is there after its end")
				}
				if left := n.images.Left(); len(left) > 0 {
					t.Errorf("held: %v", left)
				}
				if calls := n.script.Calls(); len(n.groups.Left()) > 0 || slices.Index(calls, "Groups.Remove") < slices.Index(calls, "Filesystems.Sweep") {
					t.Errorf("groups %v; the cgroup is removed before the processes in it have ended", n.groups.Left())
				}
				if _, err := os.Stat(overlay); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("its folder: %v", err)
				}
				must(t, n.RemoveIn(t.Context(), r.SandboxID))
			})
		})
	}
}

// TestOldRecordOfAnEndedGuest: a record from before the start says that there is nothing to undo. All that the start made
// goes nevertheless, and nothing starts in its place before.
func TestOldRecordOfAnEndedGuest(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.started(t, "pod")
		r := n.rec(t, id)
		n.end()
		n.libvirt.End(r.Domain.UUID, domain.ReasonFailed)
		old := r
		old.State, old.Unclean, old.Domain.PID, old.StartedAt, old.Network = record.Created, false, 0, time.Time{}, nil
		must(t, n.store.PutContainer(old))
		n.libvirt.SetAway(true)
		n.join()
		must(t, n.Recover(t.Context()))
		n.run(t)
		if now := n.rec(t, id); now.State != record.Exited || !now.Unclean || !strings.Contains(now.Message, "an old one") {
			t.Errorf("it is %s, unclean: %t, %q", now.State, now.Unclean, now.Message)
		}
		n.libvirt.SetAway(false)
		time.Sleep(time.Hour)
		if n.libvirt.Status(r.Domain.UUID) != "" || len(n.groups.Left()) > 0 || n.rec(t, id).Unclean {
			t.Errorf("domain %q, groups %v are left", n.libvirt.Status(r.Domain.UUID), n.groups.Left())
		}
		must(t, n.RemoveIn(t.Context(), r.SandboxID))
		if left := slices.Concat(n.images.Left(), n.network.Left()); n.table.Knows(id) || len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// TestLostRecordOfAnEndedGuest: its domain goes, once libvirtd answers, and no other VM's.
func TestLostRecordOfAnEndedGuest(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id, other := n.started(t, "pod"), n.started(t, "other")
		r, kept := n.rec(t, id), n.rec(t, other)
		n.end()
		n.libvirt.End(r.Domain.UUID, domain.ReasonFailed)
		n.store.Lose(id)
		n.libvirt.SetAway(true)
		n.join()
		must(t, n.Recover(t.Context()))
		n.run(t)
		time.Sleep(time.Minute)
		n.libvirt.SetAway(false)
		time.Sleep(time.Hour)
		if n.libvirt.Status(r.Domain.UUID) != "" || n.table.Knows(id) || n.network.Server(id) != 0 || n.network.Has(id, "bridge") || n.attached(id) {
			t.Errorf("domain %q, known: %t, networks %v, disks %v are left", n.libvirt.Status(r.Domain.UUID), n.table.Knows(id), n.network.Left(), n.disks.Left())
		}
		if n.libvirt.Status(kept.Domain.UUID) != domain.StatusRunning || n.rec(t, other).State != record.Running {
			t.Errorf("the other VM is %s", n.rec(t, other).State)
		}
		must(t, n.RemoveIn(t.Context(), r.SandboxID))
	})
}

// TestLostRecordOfAForgottenGuest: libvirt does not know the guest either.
func TestLostRecordOfAForgottenGuest(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.started(t, "pod")
		r := n.rec(t, id)
		n.end()
		pid := n.libvirt.Forget(r.Domain.UUID)
		n.store.LoseAll()
		n.join()
		must(t, n.Recover(t.Context())) // containerd does not know its pod
		n.run(t)
		if !n.table.Knows(id) || n.network.Server(id) == 0 {
			t.Error("the guest is not known")
		}
		n.libvirt.Kill(pid)
		time.Sleep(time.Hour)
		if slices.Contains(n.disks.Left(), "attached disks of "+id) {
			t.Error("the nodes of its block devices are left")
		}
		if left := slices.Concat(n.images.Left(), n.network.Left()); n.table.Knows(id) || len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// TestLostRecordOfAnUndefinedGuest: its domain has gone, too, so that its folder, or a disk of its image, leads to the rest.
func TestLostRecordOfAnUndefinedGuest(t *testing.T) {
	for name, lead := range map[string]func(n *node, id string){
		"folder": func(n *node, id string) { _ = n.images.Release(context.Background(), id) },
		"image":  func(n *node, id string) { _ = os.RemoveAll(n.store.ContainerDir(id)) },
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				id, other := n.started(t, "pod"), n.started(t, "other")
				r := n.rec(t, id)
				must(t, os.MkdirAll(n.store.ContainerDir(id), 0o700))
				n.end()
				n.libvirt.Kill(n.libvirt.Forget(r.Domain.UUID))
				n.store.Lose(id)
				lead(n, id)
				n.join()
				must(t, n.Recover(t.Context()))
				n.run(t)
				if n.attached(id) || !n.attached(other) {
					t.Errorf("nodes of devices: %v", n.disks.Left())
				}
				if _, err := os.Stat(n.store.ContainerDir(id)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("its folder: %v", err)
				}
			})
		})
	}
}

// TestLostGuestEndsDuringACreation: what a container that is being created holds stays, though the table does not know it yet.
func TestLostGuestEndsDuringACreation(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.started(t, "pod")
		r := n.rec(t, id)
		n.end()
		n.store.Lose(id)
		n.join()
		must(t, n.Recover(t.Context()))
		n.run(t)
		ours := func(owner string) bool { return strings.HasPrefix(owner, id) }

		release := n.script.Hold("Images.ImageStatus") // called when the image is held
		defer release()
		sandbox := n.addPod(t, "other", nil)
		created := make(chan error, 1)
		go func() {
			_, err := n.Create(t.Context(), sandbox, request(0))
			created <- err
		}()
		time.Sleep(time.Millisecond)
		held := slices.DeleteFunc(n.images.Left(), ours)
		if len(held) == 0 || len(n.table.All(sandbox)) > 0 {
			t.Fatalf("the creation holds %v, and its pod has %d containers", held, len(n.table.All(sandbox)))
		}
		n.libvirt.End(r.Domain.UUID, domain.ReasonShutdown)
		time.Sleep(time.Second)
		if n.table.Knows(id) || slices.ContainsFunc(n.images.Left(), ours) {
			t.Errorf("the lost guest is there after its end, held: %v", n.images.Left())
		}
		if left := n.images.Left(); !slices.Equal(left, held) {
			t.Errorf("held: %v, want %v", left, held)
		}
		release()
		must(t, <-created)
	})
}

// TestLostGuestIsRemovedLater: what it left is removed once libvirtd answers.
func TestLostGuestIsRemovedLater(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.started(t, "pod")
		r := n.rec(t, id)
		n.end()
		n.store.LoseAll()
		n.join()
		must(t, n.Recover(t.Context()))
		n.run(t)
		n.libvirt.SetAway(true)
		n.libvirt.End(r.Domain.UUID, domain.ReasonShutdown)
		time.Sleep(time.Hour)
		if !n.table.Knows(id) || !strings.Contains(strings.Join(n.images.Left(), " "), id) {
			t.Error("it is removed while libvirtd is away")
		}
		n.libvirt.SetAway(false)
		time.Sleep(time.Hour)
		if n.table.Knows(id) || n.libvirt.Status(r.Domain.UUID) != "" {
			t.Error("it is there after its end")
		}
	})
}
