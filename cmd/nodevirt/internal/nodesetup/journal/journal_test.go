package journal_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/journal"
)

// tree returns all files and folders below dir, with mode and content, except the journal's.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if name == filepath.FromSlash(journal.Dir) {
			return filepath.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		all[name] = info.Mode().String()
		if d.Type().IsRegular() {
			text, err := os.ReadFile(path)
			all[name] += " " + string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func open(t *testing.T) (*os.Root, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"etc/a.conf": "a\n", "etc/secret": "s\n", "var/lib/x": ""} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "etc/secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root, dir
}

func planned(t *testing.T, root *os.Root) *journal.Journal {
	t.Helper()
	j := &journal.Journal{State: journal.Changing}
	for _, name := range []string{"etc/a.conf", "etc/secret", "etc/new/deep/b.conf", "etc/new/c.conf"} {
		f, err := journal.Plan(root, name, []byte("changed "+name))
		if err != nil {
			t.Fatal(err)
		}
		j.Files = append(j.Files, f)
	}
	return j
}

// TestRestore restores a node that was left at each possible moment: with the first n files written.
func TestRestore(t *testing.T) {
	for n := range 5 {
		root, dir := open(t)
		before := tree(t, dir)
		j := planned(t, root)
		if err := j.Save(root); err != nil {
			t.Fatal(err)
		}
		part := *j
		part.Files = j.Files[:n]
		if err := part.Apply(root); err != nil {
			t.Fatal(err)
		}
		if n == 4 {
			want := "-rw------- changed etc/secret"
			if got := tree(t, dir)["etc/secret"]; got != want {
				t.Errorf("the changed file is %q, not %q", got, want)
			}
		}
		loaded, err := journal.Load(root)
		if err != nil || loaded == nil {
			t.Fatalf("load: %v, %v", loaded, err)
		}
		for range 2 { // a second restore changes nothing
			if err := loaded.Restore(root); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
				t.Errorf("after %d files, restore differs (-before +after):\n%s", n, diff)
			}
		}
		if err := journal.Remove(root); err != nil {
			t.Fatal(err)
		}
		if j, err := journal.Load(root); j != nil || err != nil {
			t.Errorf("after Remove there is %v, %v", j, err)
		}
	}
}

// TestRestoreOfADraft: a process that was killed while it wrote a file left a part of it.
func TestRestoreOfADraft(t *testing.T) {
	root, dir := open(t)
	before := tree(t, dir)
	j := planned(t, root)
	if err := os.WriteFile(filepath.Join(dir, "etc/a.conf.nodevirt-new"), []byte("chan"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := j.Restore(root); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestEdited(t *testing.T) {
	root, dir := open(t)
	j := planned(t, root)
	names := func(get func(*os.Root) ([]string, error)) []string {
		names, err := get(root)
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if edited, changed := names(j.Edited), names(j.Changed); len(edited) > 0 || len(changed) != 4 {
		t.Errorf("before the change, edited: %v, changed: %v", edited, changed)
	}
	if err := j.Apply(root); err != nil {
		t.Fatal(err)
	}
	if edited, changed := names(j.Edited), names(j.Changed); len(edited)+len(changed) > 0 {
		t.Errorf("after the change, edited: %v, changed: %v", edited, changed)
	}
	if err := os.WriteFile(filepath.Join(dir, "etc/a.conf"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "etc/new/c.conf")); err != nil {
		t.Fatal(err)
	}
	if got, want := names(j.Edited), []string{"/etc/a.conf"}; !slices.Equal(got, want) {
		t.Errorf("edited: %v, not %v", got, want)
	}
	if got, want := names(j.Changed), []string{"/etc/a.conf", "/etc/new/c.conf"}; !slices.Equal(got, want) {
		t.Errorf("changed: %v, not %v", got, want)
	}
}

func TestPlanRefusesALink(t *testing.T) {
	root, dir := open(t)
	if err := os.Symlink("a.conf", filepath.Join(dir, "etc/link")); err != nil {
		t.Fatal(err)
	}
	if _, err := journal.Plan(root, "etc/link", nil); err == nil {
		t.Error("a symbolic link was planned as a file")
	}
}

// TestUnchangedFiles: a file that is as it should be is not written again, as a full file system has no room for that.
func TestUnchangedFiles(t *testing.T) {
	root, dir := open(t)
	j := planned(t, root)
	id := func() string {
		t.Helper()
		info, err := os.Stat(filepath.Join(dir, "etc/secret"))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(info.Sys().(*syscall.Stat_t).Ino, info.ModTime())
	}
	before := id()
	if err := j.Restore(root); err != nil {
		t.Fatal(err)
	}
	if now := id(); now != before {
		t.Errorf("a rollback before the change wrote the file: %s, %s", before, now)
	}
	if err := j.Apply(root); err != nil {
		t.Fatal(err)
	}
	changed := id()
	if err := j.Apply(root); err != nil {
		t.Fatal(err)
	}
	if now := id(); now != changed || now == before {
		t.Errorf("a second change wrote the file: %s, %s, %s", before, changed, now)
	}
}

// TestPlanFollowsFolders: a folder may be an absolute link, which stays.
func TestPlanFollowsFolders(t *testing.T) {
	root, dir := open(t)
	if err := os.Symlink("/etc", filepath.Join(dir, "conf")); err != nil {
		t.Fatal(err)
	}
	f, err := journal.Plan(root, "conf/a.conf", []byte("changed"))
	if err != nil || f.Path != "etc/a.conf" || f.Before == nil || string(f.Before.Data) != "a\n" {
		t.Fatalf("%+v, %v", f, err)
	}
	j := &journal.Journal{Files: []journal.File{f}}
	before := tree(t, dir)
	if err := j.Apply(root); err != nil {
		t.Fatal(err)
	}
	if err := j.Restore(root); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
		t.Errorf("restore differs (-before +after):\n%s", diff)
	}
}
