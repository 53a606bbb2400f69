package disk

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/imageunpack/rawview"
	"github.com/nodevirt/nodevirt/shim/record"
)

// disks are those of a node without containerd and tgtd.
func disks(t *testing.T) (d *Disks, dir string) {
	t.Helper()
	dir = t.TempDir()
	log := slog.New(slog.DiscardHandler)
	expander, err := expand.New(expand.Options{Dir: filepath.Join(dir, "expanded"), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(expander.Close)
	key, err := iscsi.OpenKey(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	return New(Options{
		Unpacker: imageunpack.New(nil, imageunpack.Options{}), Expander: expander, Shares: dir, LastUID: 9,
		ISCSI: ISCSI{Daemon: iscsi.New(iscsi.Options{Socket: filepath.Join(dir, "tgtd"), Logger: log}), Key: key, Logger: log},
		Views: rawview.Options{Dir: filepath.Join(dir, "views"), Logger: log},
	}), dir
}

func makeFolder(t *testing.T, path ...string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(path...), 0o700); err != nil {
		t.Fatal(err)
	}
}

// TestExportIsRecordedLast: what is cut off in the middle is no export, which would be served again
// with half of a disk, and all of it is found.
func TestExportIsRecordedLast(t *testing.T) {
	d, _ := disks(t)
	e, err := d.Exports.reserve(ExportRequest{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	e.Disk.VirtualSize = 1 << 20
	if _, err := d.Exports.reserve(ExportRequest{Name: "a"}); err == nil {
		t.Error("a name is given twice")
	}
	if other, err := d.Exports.reserve(ExportRequest{Name: "b"}); err != nil || other.UID == e.UID {
		t.Errorf("another export: user %d, the first %d, %v", other.UID, e.UID, err)
	}
	wantStray := func(want ...string) {
		t.Helper()
		if stray, err := d.Exports.strays([]string{"export-released", "container"}); err != nil || !slices.Equal(stray, want) {
			t.Errorf("stray: %q, %v, want %q", stray, err, want)
		}
	}
	if err := d.Exports.makeFile(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if all, err := d.Exports.List(); err != nil || len(all) > 0 {
		t.Errorf("exports before the record: %v, %v", all, err)
	}
	wantStray("export-released")
	d.Exports.drop(e) // as a shim that was killed has
	wantStray("export-released", e.ID)
	if err := os.WriteFile(d.Exports.served.(overISCSI).raw.writable(e.disk()), nil, 0o600); err != nil { // which needs no view
		t.Fatal(err)
	}
	if err := d.Exports.begin(t.Context(), e); !errors.Is(err, iscsi.ErrUnavailable) {
		t.Fatalf("without tgtd: %v", err)
	}
	if all, err := d.Exports.List(); err != nil || len(all) > 0 {
		t.Errorf("exports that could not be served: %v, %v", all, err)
	}
	if err := d.Exports.files.remove(e.ID); err != nil {
		t.Fatal(err)
	}
	wantStray("export-released")
}

// TestExportsBesideABrokenOne: a record that can't be read takes none of the others.
func TestExportsBesideABrokenOne(t *testing.T) {
	d, dir := disks(t)
	for id, text := range map[string]string{"export-1": `{"name": "a", "id": "export-1"}`, "export-2": "{"} {
		makeFolder(t, dir, "exports", id)
		if err := os.WriteFile(filepath.Join(dir, "exports", id, exportFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := d.Exports.List()
	if err == nil || len(all) != 1 || all[0].ID != "export-1" {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := d.Exports.strays(nil); err == nil {
		t.Error("strays were found without a list of records")
	}
}

// TestStrayViews: the view of a container that comes while the records are read is left alone.
func TestStrayViews(t *testing.T) {
	d, dir := disks(t)
	makeFolder(t, dir, "views", "gone.1")
	views, targets, err := d.Keeper.strays(t.Context(), func() []record.Container {
		makeFolder(t, dir, "views", "new.1")
		return nil
	})
	if err != nil || len(targets) > 0 || !slices.Equal(views, []string{"gone.1"}) {
		t.Errorf("views %q, targets %v, %v", views, targets, err)
	}
}
