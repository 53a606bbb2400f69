package table_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
)

const (
	base  = 5000
	count = 100
)

func id(n int) string { return fmt.Sprintf("%064x", n) }

func newTable(t *testing.T) (*table.Table, *vmtest.Store, *vmtest.Script) {
	t.Helper()
	script := &vmtest.Script{}
	store := vmtest.NewStore(script, t.TempDir())
	return table.New(store, base, count), store, script
}

// container returns the VM container of a new pod.
func container(t *testing.T, vms *table.Table, n int) record.Container {
	t.Helper()
	pod := fmt.Sprintf("%c%063x", 'a'+n%6, n)
	vms.RecoverSandbox(record.Sandbox{ID: pod})
	r := record.Container{ID: id(n), SandboxID: pod, State: record.Creating}
	r.Config.Value = &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "vm"}}
	r.Sandbox.Value = &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: fmt.Sprint("pod-", n), Namespace: "ns", Uid: "u"}}
	return r
}

// TestReserveAtOnce: many at a time, and each has a different user.
func TestReserveAtOnce(t *testing.T) {
	vms, _, _ := newTable(t)
	var all sync.WaitGroup
	errs := make([]error, count+20)
	for n := range errs {
		all.Go(func() {
			errs[n] = vms.Reserve(table.NewVM(container(t, vms, n)))
			_ = vms.All("")
			_ = vms.Has(id(n))
		})
	}
	all.Wait()
	failed := 0
	for _, err := range errs {
		if err == nil {
			continue
		}
		failed++
		if want := "all 100 user ids for VMs are taken: widen vm.uid_count in the shim's config"; err.Error() != want {
			t.Errorf("got %v", err)
		}
	}
	users := map[uint32]bool{}
	for _, v := range vms.All("") {
		d := v.Record().Domain
		if d.UID < base || d.UID >= base+count || d.GID != d.UID || users[d.UID] {
			t.Errorf("user %d, group %d: taken %t", d.UID, d.GID, users[d.UID])
		}
		users[d.UID] = true
	}
	if failed != 20 || len(users) != count {
		t.Errorf("%d failed, %d users", failed, len(users))
	}
	// What is forgotten is free again.
	gone := vms.All("")[7]
	if err := vms.Drop(gone); err != nil {
		t.Fatal(err)
	}
	if _, err := gone.Lock(t.Context()); !errors.Is(err, vmerrors.ErrNotFound) {
		t.Errorf("the turn of one that is gone: %v", err)
	}
	v := table.NewVM(container(t, vms, 1000))
	if err := vms.Reserve(v); err != nil || v.Record().Domain.UID != gone.Record().Domain.UID {
		t.Errorf("after one is gone: %v, user %d", err, v.Record().Domain.UID)
	}
}

// TestReserveSame: of many that want one name, one gets it.
func TestReserveSame(t *testing.T) {
	vms, _, _ := newTable(t)
	r := container(t, vms, 1)
	var all sync.WaitGroup
	errs := make([]error, 20)
	for n := range errs {
		all.Go(func() {
			r := r
			r.ID = id(100 + n)
			errs[n] = vms.Reserve(table.NewVM(r))
		})
	}
	all.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if !errors.Is(err, vmerrors.ErrExists) {
			t.Errorf("got %v", err)
		}
	}
	if won != 1 {
		t.Errorf("%d have it", won)
	}
	// A second VM in the pod, by another name, waits until the first has ended.
	second := r
	second.ID = id(2)
	second.Config.Value = &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "other"}}
	if err := vms.Reserve(table.NewVM(second)); !errors.Is(err, vmerrors.ErrExists) {
		t.Errorf("a second VM: %v", err)
	}
	first := vms.All("")[0]
	ended := first.Record()
	ended.State = record.Exited
	if err := vms.Put(first, ended); err != nil {
		t.Fatal(err)
	}
	<-first.Exited()
	if err := vms.Reserve(table.NewVM(second)); err != nil {
		t.Errorf("after the first has ended: %v", err)
	}
	// A sandbox that was removed while its container was being made.
	orphan := container(t, vms, 9)
	if err := vms.ForgetSandbox(orphan.SandboxID, func(record.Sandbox) {}); err != nil {
		t.Fatal(err)
	}
	if err := vms.Reserve(table.NewVM(orphan)); !errors.Is(err, vmerrors.ErrNotFound) {
		t.Errorf("without a sandbox: %v", err)
	}
}

// TestExited: what waits for the end of a VM does not wait for one that has left the table.
func TestExited(t *testing.T) {
	for name, leave := range map[string]func(*table.Table, *table.VM) error{"removed": (*table.Table).Remove, "dropped": (*table.Table).Drop} {
		vms, _, _ := newTable(t)
		v := table.NewVM(container(t, vms, 1))
		if err := vms.Reserve(v); err != nil {
			t.Fatal(err)
		}
		select {
		case <-v.Exited():
			t.Errorf("%s: too early", name)
		default:
		}
		if err := leave(vms, v); err != nil {
			t.Fatal(err)
		}
		<-v.Exited()
		ended := v.Record()
		ended.State = record.Exited
		v.Publish(ended)
	}
}

func TestFind(t *testing.T) {
	vms, _, _ := newTable(t)
	for _, full := range []string{"aa" + id(1)[2:], "ab" + id(2)[2:], "b" + id(3)[1:]} {
		if v := vms.Recover(record.Container{ID: full}); !v.Recovered() {
			t.Error("it is not known as recovered")
		}
	}
	for short, want := range map[string]string{
		"aa": "aa" + id(1)[2:], "b": "b" + id(3)[1:], "ab" + id(2)[2:]: "ab" + id(2)[2:], "a": "", "": "", "c": "", "aa" + id(1)[2:] + "0": "",
	} {
		v, err := vms.Find(short)
		if vms.Has(short) != (want != "") {
			t.Errorf("%q: Has is %t", short, vms.Has(short))
		}
		switch {
		case want == "" && !errors.Is(err, vmerrors.ErrNotFound):
			t.Errorf("%q: %v", short, err)
		case want != "" && (err != nil || v.Record().ID != want):
			t.Errorf("%q: %v, %v", short, v, err)
		}
	}
	if _, err := vms.Find("a"); !strings.Contains(err.Error(), `ambiguous container ID prefix "a"`) || !strings.Contains(err.Error(), "2 containers") {
		t.Errorf("error %v", err)
	}
}

// TestTurn: one call at a time, and a call that can't wait gets an error.
func TestTurn(t *testing.T) {
	v := table.NewVM(record.Container{ID: id(1)})
	n := 0
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			unlock, err := v.Lock(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer unlock()
			n++
		})
	}
	all.Wait()
	if n != 50 {
		t.Errorf("%d turns", n)
	}
	unlock, err := v.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.Lock(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "wait for another call on container") {
		t.Errorf("a call that can't wait: %v", err)
	}
}

// TestTurnOfAVMThatGoes: a call that waits while the VM is removed does nothing.
func TestTurnOfAVMThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vms, store, _ := newTable(t)
		v := table.NewVM(container(t, vms, 1))
		if err := vms.Reserve(v); err != nil {
			t.Fatal(err)
		}
		unlock, err := v.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		failed := make(chan error)
		go func() {
			_, err := v.Lock(t.Context())
			failed <- err
		}()
		synctest.Wait()
		if err := vms.Remove(v); err != nil {
			t.Fatal(err)
		}
		unlock()
		if err := <-failed; !errors.Is(err, vmerrors.ErrNotFound) {
			t.Errorf("the turn of a VM that went: %v", err)
		}
		if _, ok := store.Container(id(1)); ok || vms.Has(id(1)) {
			t.Error("it is still there")
		}
	})
}

// TestDiskBeforeMemory: a record that can't be written is not published.
func TestDiskBeforeMemory(t *testing.T) {
	vms, store, script := newTable(t)
	v := table.NewVM(container(t, vms, 1))
	if err := vms.Reserve(v); err != nil {
		t.Fatal(err)
	}
	created := v.Record()
	created.State = record.Created
	script.Fail("Store.PutContainer", vmtest.ErrFull)
	if err := vms.Put(v, created); !errors.Is(err, vmtest.ErrFull) || v.Record().State != record.Creating {
		t.Errorf("%v; in memory it is %s", err, v.Record().State)
	}
	script.Fail("Store.PutContainer", nil)
	if err := vms.Save(created); err != nil || v.Record().State != record.Creating {
		t.Errorf("%v; in memory it is %s", err, v.Record().State)
	}
	if r, _ := store.Container(created.ID); r.State != record.Created {
		t.Errorf("on disk it is %s", r.State)
	}
	script.Fail("Store.RemoveContainer", vmtest.ErrFull)
	if err := vms.Remove(v); err == nil || !vms.Has(created.ID) {
		t.Errorf("%v: a VM without its record", err)
	}
	if err := vms.Drop(v); err == nil || vms.Has(created.ID) {
		t.Errorf("%v: a VM that was not made stays", err)
	}
}

func TestSandboxes(t *testing.T) {
	vms, _, script := newTable(t)
	a, b := "a"+id(1)[1:], "b"+id(2)[1:]
	if err := errors.Join(vms.AddSandbox(record.Sandbox{ID: a, Handler: "vm"}), vms.RestoreSandbox(record.Sandbox{ID: b})); err != nil {
		t.Fatal(err)
	}
	all := vms.Sandboxes()
	slices.Sort(all)
	if !slices.Equal(all, []string{a, b}) || !slices.Equal(vms.SandboxesWith("a"), []string{a}) || len(vms.SandboxesWith("")) != 2 {
		t.Errorf("sandboxes %v", all)
	}
	if r, ok := vms.Sandbox(a); !ok || r.Handler != "vm" {
		t.Errorf("sandbox %+v", r)
	}
	script.Fail("Store.PutSandbox", vmtest.ErrFull)
	if err := vms.AddSandbox(record.Sandbox{ID: "c"}); err == nil || len(vms.SandboxesWith("c")) != 0 {
		t.Errorf("%v: a sandbox without a record", err)
	}
	if err := vms.RestoreSandbox(record.Sandbox{ID: "d"}); err == nil || len(vms.SandboxesWith("d")) != 1 {
		t.Errorf("%v: a VM without a sandbox", err)
	}
	script.Fail("Store.RemoveSandbox", vmtest.ErrFull)
	if err := vms.ForgetSandbox(a, func(record.Sandbox) { t.Error("it is forgotten") }); !errors.Is(err, vmtest.ErrFull) {
		t.Errorf("error %v", err)
	}
	vms.IfSandbox("x", func() { t.Error("there is no such sandbox") })
	called := false
	vms.IfSandbox(a, func() { called = true })
	if !called {
		t.Error("the sandbox is not known")
	}
}

// TestClockSetBack: the newer VM of a pod stays the newer one.
func TestClockSetBack(t *testing.T) {
	vms, _, _ := newTable(t)
	older, newer := container(t, vms, 1), container(t, vms, 1)
	older.State, older.CreatedAt = record.Exited, time.Now().Add(24*time.Hour)
	newer.ID, newer.CreatedAt = id(2), time.Now()
	newer.Config.Value = &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "vm", Attempt: 1}}
	vms.Recover(older)
	v := table.NewVM(newer)
	if err := vms.Reserve(v); err != nil {
		t.Fatal(err)
	}
	called := false
	vms.IfLatest(v.Record(), func() { called = true })
	vms.IfLatest(older, func() { t.Error("the older VM counts") })
	if !called {
		t.Errorf("the newer VM, created at %s, does not count", v.Record().CreatedAt)
	}
}

func TestQueries(t *testing.T) {
	vms, _, _ := newTable(t)
	older, newer := container(t, vms, 1), container(t, vms, 1)
	older.State, newer.ID, newer.State = record.Exited, id(2), record.Running
	newer.CreatedAt = older.CreatedAt.AddDate(1, 0, 0)
	vms.Recover(older)
	v := vms.Recover(newer)
	vms.Recover(container(t, vms, 3))
	if got := len(vms.All(older.SandboxID)); got != 2 {
		t.Errorf("%d VMs of the sandbox", got)
	}
	if got := vms.Records(record.Running, record.Exited); len(got) != 2 {
		t.Errorf("records %v", got)
	}
	if got := vms.Records(); len(got) != 3 {
		t.Errorf("records %v", got)
	}
	if got, ok := vms.RunningIn(older.SandboxID); !ok || got != v {
		t.Errorf("running %v, %t", got, ok)
	}
	if _, ok := vms.RunningIn(id(9)); ok {
		t.Error("a VM runs in no sandbox")
	}
	vms.IfLatest(older, func() { t.Error("an older VM counts") })
	unknown := newer
	unknown.SandboxID = "x"
	vms.IfLatest(unknown, func() { t.Error("a VM of no sandbox counts") })
	called := false
	vms.IfLatest(newer, func() { called = true })
	if !called {
		t.Error("the latest VM does not count")
	}
	if got := table.PodName(newer); got != "ns/pod-1" {
		t.Errorf("pod %s", got)
	}
	var log bytes.Buffer
	table.Logger(slog.New(slog.NewTextHandler(&log, nil)), newer).Info("hello")
	if !strings.Contains(log.String(), "pod.namespace=ns pod.name=pod-1 container.name=vm container.id="+newer.ID) {
		t.Error(log.String())
	}
}

// TestRefused: a VM whose record cannot be used keeps what is known of it, and
// nothing gets its turn. A new VM does not share its user with a guest whose record
// does not say its own.
func TestRefused(t *testing.T) {
	store := vmtest.NewStore(&vmtest.Script{}, t.TempDir())
	vms := table.New(store, base, 3)
	vms.UsersInUse = func() (map[uint32]bool, error) { return map[uint32]bool{base: true}, nil }
	lost := container(t, vms, 7)
	lost.State, lost.Domain.UID = record.Unknown, base+1
	vms.RefuseContainer(lost, errors.New("it is truncated"))
	vms.RefuseContainer(record.Container{ID: id(8), State: record.Unknown}, errors.New("it is noise"))

	v := table.NewVM(container(t, vms, 1))
	if err := vms.Reserve(v); err != nil || v.Record().Domain.UID != base+2 {
		t.Errorf("%v; user %d", err, v.Record().Domain.UID)
	}
	same := lost
	same.ID = id(9)
	if err := vms.Reserve(table.NewVM(same)); !errors.Is(err, vmerrors.ErrExists) {
		t.Errorf("its name: %v", err)
	}
	other := same
	other.Config.Value = &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "other"}}
	if err := vms.Reserve(table.NewVM(other)); !errors.Is(err, vmerrors.ErrExists) {
		t.Errorf("its pod: %v", err)
	}
	for _, one := range []string{id(7), id(8)} {
		v, err := vms.Find(one)
		if err != nil || !vms.Knows(one) || vms.Refusals.Of(one) == nil {
			t.Fatalf("%s: %v", one, err)
		}
		if _, err := v.Lock(t.Context()); !errors.Is(err, vmerrors.ErrRecord) || !strings.Contains(err.Error(), "docs/node.md") {
			t.Errorf("its turn: %v", err)
		}
	}
	if vms.Knows(id(2)) || vms.Refusals.Of(id(1)) != nil || !vms.Refusals.Any() {
		t.Error("the wrong ones are refused")
	}
	pod := record.Sandbox{ID: id(20)}
	vms.RefuseSandbox(pod, record.ErrNewer)
	if err := vms.ForgetSandbox(pod.ID, func(record.Sandbox) {}); !errors.Is(err, vmerrors.ErrRecord) || !errors.Is(err, record.ErrNewer) {
		t.Errorf("its sandbox: %v", err)
	}
}

// TestPerVM: each part has its own value of a VM, which is made once.
func TestPerVM(t *testing.T) {
	made := 0
	a := table.PerVM[*int]{New: func(*table.VM) *int { made++; return new(int) }}
	b := table.PerVM[*int]{New: a.New}
	v, w := table.NewVM(record.Container{}), table.NewVM(record.Container{})
	first, again := a.Of(v), a.Of(v)
	if first != again || first == b.Of(v) || a.Of(v) == a.Of(w) || made != 3 {
		t.Errorf("%d values were made", made)
	}
}
