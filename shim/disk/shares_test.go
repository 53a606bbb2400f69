package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestExport takes an export from its begin to its end.
func TestExport(t *testing.T) {
	n := newNode(t)
	c, err := n.Exports.Add(t.Context(), ExportRequest{Name: "a", Image: "guest"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Size != 1<<20 || c.Target == "" || c.Password == "" || c.Portal != n.Exports.Portal() {
		t.Errorf("%+v", c)
	}
	if _, err := n.Exports.Add(t.Context(), ExportRequest{Name: "a", Image: "guest"}); !errors.Is(err, ErrExists) {
		t.Errorf("the name again: %v", err)
	}
	if _, err := n.Exports.Add(t.Context(), ExportRequest{Name: "A"}); !errors.Is(err, ErrName) {
		t.Errorf("a bad name: %v", err)
	}
	if _, err := n.Exports.Add(t.Context(), ExportRequest{Name: "b", Image: "none"}); !errors.Is(err, imageunpack.ErrNoDisk) {
		t.Errorf("no disk: %v", err)
	}
	all, err := n.Exports.List()
	if err != nil || len(all) != 1 || n.Exports.Target(all[0]) != c.Target || len(n.images.held) != 1 {
		t.Fatalf("%v, %v, held %v", all, err, n.images.held)
	}
	clear(n.daemon.served) // as a new tgtd
	n.Exports.restore(t.Context(), "")
	if users, served, err := n.Exports.Users(t.Context(), all[0]); !served || err != nil || len(users) > 0 {
		t.Errorf("users %q, served %t, %v", users, served, err)
	}
	n.Exports.hold(t.Context())
	if n.daemon.limits != 1 {
		t.Errorf("it was limited to one initiator %d times", n.daemon.limits)
	}
	if err := n.Keeper.Sweep(t.Context(), func() []record.Container { return nil }); err != nil {
		t.Error(err)
	}
	n.daemon.users = []string{"initiator"}
	if err := n.Exports.Remove(t.Context(), "a", false); !errors.Is(err, iscsi.ErrBusy) {
		t.Errorf("an export in use: %v", err)
	}
	if err := n.Exports.Remove(t.Context(), "a", true); err != nil {
		t.Error(err)
	}
	if target := n.daemon.served[c.Target]; target.Path != "" {
		t.Errorf("its user still has %s", target.Path)
	}
	if err := n.Exports.Remove(t.Context(), "a", true); !errors.Is(err, ErrUnknown) {
		t.Errorf("a second time: %v", err)
	}
	n.daemon.users = nil
	if _, err := n.Exports.Add(t.Context(), ExportRequest{Name: "a", Image: "cd", Shareable: true}); err != nil {
		t.Fatal(err)
	}
	n.Exports.hold(t.Context())
	if n.daemon.limits != 1 {
		t.Error("a shareable export is limited to one initiator")
	}
	if err := n.Exports.Remove(t.Context(), "a", false); err != nil {
		t.Error(err)
	}
	if len(n.images.held)+len(n.shown) > 0 {
		t.Errorf("left: %v, %v", n.images.held, n.shown)
	}
}

// TestExportWithoutTgtd: an export that can't be served is undone.
func TestExportWithoutTgtd(t *testing.T) {
	n := newNode(t)
	n.daemon.away = true
	if _, err := n.Exports.Add(t.Context(), ExportRequest{Name: "a", Image: "guest"}); !errors.Is(err, iscsi.ErrUnavailable) {
		t.Fatal(err)
	}
	if all, err := n.Exports.List(); err != nil || len(all) > 0 || len(n.images.held)+len(n.shown) > 0 {
		t.Errorf("left: %v, %v, %v, %v", all, err, n.images.held, n.shown)
	}
}

// TestSweep removes what belongs to no container and to no export.
func TestSweep(t *testing.T) {
	n := newNode(t)
	r := n.container(t, "c1", vmspec.Disk{Name: "d", Source: vmspec.SourceImage, Mode: vmspec.ModeISCSI})
	if err := n.Maker.Create(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Attachments.Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	n.shown["gone.1"] = 1
	n.daemon.served[iscsi.Authority+"gone"] = iscsi.Target{Access: iscsi.Access{Name: iscsi.Authority + "gone"}}
	n.daemon.served["iqn.other"] = iscsi.Target{Access: iscsi.Access{Name: "iqn.other"}}
	n.images.held["export-gone"] = "guest"
	if err := n.Keeper.Sweep(t.Context(), func() []record.Container { return []record.Container{r} }); err != nil {
		t.Fatal(err)
	}
	if len(n.shown) != 1 || len(n.daemon.served) != 2 || len(n.images.held) != 1 {
		t.Errorf("left: %v, %v, %v", n.shown, n.daemon.served, n.images.held)
	}
	if all := portals(n.Attachments.Describe(r)); !slices.Equal(all, append(all[:0:0], n.daemon.Portal())) {
		t.Errorf("portals %v", all)
	}
}

func TestImports(t *testing.T) {
	n := newNode(t)
	if err := n.Imports.Add(theImport("data")); err != nil {
		t.Fatal(err)
	}
	if err := n.Imports.Add(theImport("data")); !errors.Is(err, ErrExists) {
		t.Errorf("the name again: %v", err)
	}
	for _, spoil := range []func(*Import){
		func(i *Import) { i.Namespace = "" }, func(i *Import) { i.Portal = "host" }, func(i *Import) { i.LUN = 256 },
		func(i *Import) { i.Password = "short" },
	} {
		i := theImport("other")
		spoil(&i)
		if err := n.Imports.Add(i); !errors.Is(err, ErrBad) {
			t.Errorf("%+v: %v", i, err)
		}
	}
	if all, err := n.Imports.List(); err != nil || len(all) != 1 || all[0] != theImport("data") {
		t.Errorf("%v, %v", all, err)
	}
	r := n.container(t, "c1", vmspec.Disk{Name: "d", Source: vmspec.SourceImport, Import: "data"})
	if err := errors.Join(n.Imports.Remove("data"), n.Maker.Create(t.Context(), r, nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Attachments.Attach(t.Context(), r); !errors.Is(err, ErrUnknown) {
		t.Errorf("a forgotten import: %v", err)
	}
	other := theImport("data")
	other.Target += "b"
	if err := n.Imports.Add(other); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Attachments.Attach(t.Context(), r); err == nil {
		t.Error("it is another disk now")
	}
	if err := errors.Join(n.Imports.Remove("data")); err != nil {
		t.Error(err)
	}
	if err := n.Imports.Remove("data"); !errors.Is(err, ErrUnknown) {
		t.Errorf("a second time: %v", err)
	}
	if err := n.Imports.Remove("../x"); !errors.Is(err, ErrName) {
		t.Errorf("a bad name: %v", err)
	}
	if err := os.WriteFile(filepath.Join(n.dir, "imports", "bad.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Imports.List(); err == nil {
		t.Error("a broken file is read")
	}
}

// TestWatch: a new tgtd concerns all containers and exports.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		if _, err := n.Exports.Add(t.Context(), ExportRequest{Name: "a", Image: "guest"}); err != nil {
			t.Fatal(err)
		}
		clear(n.daemon.served)
		all, err := n.Exports.List()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var put []string
		var watching sync.WaitGroup
		watching.Go(func() {
			n.Keeper.Watch(ctx, func(_ context.Context, id string) {
				mu.Lock()
				defer mu.Unlock()
				put = append(put, id)
			})
		})
		n.Keeper.ended <- all[0].ID + ".1"
		n.Keeper.ended <- "c1.1"
		time.Sleep(holdEvery + viewAgain)
		synctest.Wait()
		mu.Lock()
		if !slices.Equal(put, []string{"", "c1"}) || len(n.daemon.served) != 1 || n.daemon.limits == 0 {
			t.Errorf("put back %q, served %v, limited %d times", put, n.daemon.served, n.daemon.limits)
		}
		mu.Unlock()
		cancel()
		watching.Wait()
	})
}

func TestWatchPortalsWithoutPatience(t *testing.T) {
	newNode(t).Keeper.WatchPortals(t.Context(), nil) // returns
}
