package disk_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// write is a place on the node that may delete, replace or shorten a file, and whose file that is.
type write struct {
	// place is the function, as PACKAGE.TYPE.FUNCTION, and verb what it calls.
	place, verb string
	// user is true for a file of a user's volume. The others are the node's own.
	user bool
	// what is deleted or written, and checked what is true before.
	what, checked string
	// test is the test that holds it, as PACKAGE.NAME.
	test string
}

// writes are who may delete or overwrite files of users' volumes on a node, and the node's own files in the same packages. A
// new place needs a new row, with its test: see also controller/diskguard.
func writes() []write {
	const (
		fresh = "O_EXCL: a file that exists is never opened"
		own   = "the name is the one that this order has recorded"
		whole = "the new file is complete and on the volume"
	)
	return append([]write{
		{"persist.writer.begin", "Truncate", true, "the content of a PVC's file", "the PVC is the first VM's, is locked, and has no disk but the same one unfinished", "persist.TestAnotherOrigin"},
		{"persist.writer.finish", "WriteAt", true, "the head and the tail of a PVC's disk", "begin's; the first sector comes last", "persist.TestKilled"},
		{"persist.writer.note", "WriteAt", true, "the first sector of a PVC's disk: how much is written", "begin's", "persist.TestKilled"},
		{"persist.writer.data", "WriteAt", true, "a PVC's disk", "begin's", "persist.TestKilled"},
		{"persist.writer.zero", "Fallocate", true, "zeros of a PVC's device", "begin's", "persist.TestDevice"},
		{"persist.lockDevice", "OpenFile", true, "nothing: it opens the device again, to lock it", "nothing is written", "persist.TestLockOfADevice"},
		{"disk.Archives.Create", "Remove", true, "an unfinished archive of a checkpoint", own + ", which ends in .partial", "save.TestToVolume"},
		{"disk.Archives.Rename", "Rename", true, "the former archive of the volume", whole, "save.TestToVolume"},
		{"disk.Archives.Remove", "Remove", true, "an unfinished archive", own, "save.TestVolumeFailures"},
		{"disk.createIn", "OpenFile", true, "a new archive or dump", fresh, "disk.TestDumps"},
		{"disk.Dumps.Remove", "Remove", true, "an unfinished memory dump", own, "memorydump.TestFailures"},
		{"disk.removeDumps", "Remove", true, "former memory dumps of the volume, since it may have room for one", "regular files with the ending of dumps, by a user's order", "disk.TestDumps"},
		{"disk.Backups.Create", "Mkdir", true, "a new folder", "a folder that exists is an error", "disk.TestBackups"},
		{"disk.createBackup", "OpenFile", true, "a new file of a backup", fresh, "disk.TestBackups"},
		{"disk.createBackup", "Truncate", true, "its size", "the file is new", "disk.TestBackups"},
		{"disk.complete", "Rename", true, "nothing: the folder is the backup's", whole, "disk.TestBackups"},
		{"disk.Backups.Remove", "Remove", true, "the files of a failed backup, and folders that are empty", own, "disk.TestBackups"},
		{"disk.removeSocket", "Remove", true, "the socket for a backup's readers", own, "disk.TestReaders"},
		{"disk.Attachments.Fit", "Truncate", true, "the length of the PVC to which a disk is copied", "the PVC is the target's alone, and locked", "disk.TestCopiedInUse"},
		{"disk.growDisk", "Truncate", true, "the length of a PVC's file", "it only grows", "disk.TestGrow"},
		{"disk.allocate", "Fallocate", true, "nothing: it reserves the space of a disk", "the default mode, which keeps the content, and no more than the length", "disk.TestPreallocation"},
		{"disk.extend", "Truncate", true, "the length of a host disk's file", "the file is empty, and locked", "disk.TestHostDisk"},
		{"disk.filePVC.open", "OpenFile", true, "nothing: it creates a file that is missing", "no O_TRUNC", "disk.TestHostileMounts"},
		{"vmstate.makeVariables", "OpenFile", true, "an unfinished copy of UEFI variables", "the file is locked for this VM", "vmstate.TestVariables"},
		{"vmstate.makeVariables", "Rename", true, "nothing: there are no variables yet", whole, "vmstate.TestInterrupted"},
		{"vmstate.open", "OpenFile", true, "nothing: it opens a regular file", "no O_TRUNC and no O_CREATE", "vmstate.TestHostileVolumes"},
		{"vmstate.openLock", "OpenFile", true, "nothing: it creates the lock of a TPM", "no O_TRUNC", "vmstate.TestTPM"},
		{"vmstate.ArrivingTPM", "Mkdir", true, "a new folder", "a folder that exists stays", "vmstate.TestAdopt"},
		{"vmstate.TPMState.copy", "OpenFile", true, "an unfinished copy of a TPM's file", "the guest has come to this node, which locks its state", "vmstate.TestAdopt"},
		{"vmstate.TPMState.copy", "Rename", true, "the former file of the same TPM", whole, "vmstate.TestAdopt"},
		{"vmstate.TPMState.Adopt", "Remove", true, "files of the TPM's former state", "all files of the state that has come are on the volume", "vmstate.TestAdopt"},
		{"lifecycle.creator.unpackDisk", "OpenFile", true, "the new files of a container that is made from a checkpoint", "they are in the container's folder, also if the archive names a volume's disk", "disk.TestWrittenFilesAreTheContainers"},
		{"lifecycle.creator.unpackDisk", "Truncate", true, "the same", "the same", "disk.TestWrittenFilesAreTheContainers"},
		{"checkpoint.offsetWriter.Write", "WriteAt", true, "a new archive of a checkpoint", "disk.createIn's, or the shim's own O_EXCL", "save.TestToVolume"},
		{"checkpoint.Writer.head", "WriteAt", true, "the same", "the same", "save.TestToVolume"},
		{"checkpoint.Writer.Close", "WriteAt", true, "the same", "the same", "save.TestToVolume"},
		{"checkpoint.Writer.Close", "Truncate", true, "the same", "the same", "save.TestToVolume"},
		{"tpm.TPMs.Keep", "RemoveAll", true, "the state of a TPM that came with a guest", "adopt has put all of it on the VM's volume; a link to the volume is not followed", "tpm.TestKeep"},
		{"tpm.TPMs.Remove", "RemoveAll", true, "the folder of a TPM, with a link to the state on the VM's volume", "RemoveAll follows no link", "tpm.TestState"},
	}, nodeWrites()...)
}

// nodeWrites are the places that write files of the node's own, by paths or to interfaces whose users' files the rows above have.
func nodeWrites() []write {
	const root = "the file is below the shim's own folder"
	var all []write
	for _, one := range [][2]string{
		{"disk.openWhole", "OpenFile"}, {"disk.openOverlay", "OpenFile"}, {"disk.kernelDevices.open", "OpenFile"}, {"disk.exportFiles.record", "WriteFile"},
		{"disk.exportFiles.removeRecord", "Remove"}, {"disk.exportFiles.remove", "RemoveAll"}, {"disk.Imports.Add", "WriteFile"}, {"disk.Imports.Remove", "Remove"},
		{"disk.overISCSI.unserve", "Remove"}, {"disk.Keeper.removeStray", "Remove"}, {"disk.metricsDisk", "Create"}, {"disk.writeCephConfig", "WriteFile"},
		{"disk.blockPVC.removeNode", "Remove"}, {"disk.removeNodes", "Remove"}, {"disk.joining", "Create"}, {"save.Saves.checkpoint", "OpenFile"}, {"save.Saves.checkpoint", "Rename"},
		{"save.Saves.discard", "Remove"}, {"save.Saves.writeVolume", "Create"}, {"save.Saves.complete", "Rename"}, {"memorydump.Dumps.create", "Create"},
		{"memorydump.Dumps.remove", "Remove"}, {"backup.Backups.create", "Create"}, {"backup.Backups.create", "Remove"}, {"backup.Backups.remove", "Remove"},
		{"move.sources.begin", "Remove"}, {"move.targets.listen", "Remove"},
		{"checkpoint.sparse", "Truncate"}, {"checkpoint.sparse", "WriteAt"}, {"lifecycle.Lifecycle.RemoveIn", "Remove"}, {"lifecycle.creator.join", "Create"},
		{"lifecycle.creator.makeFiles", "Create"}, {"lifecycle.creator.ownFiles", "Create"}, {"lifecycle.creator.prepare", "Remove"}, {"lifecycle.cutLog", "Truncate"},
		{"lifecycle.ends.discard", "Remove"}, {"lifecycle.recovery.removeLost", "Remove"}, {"lifecycle.recovery.sweepRun", "Remove"}, {"lifecycle.recovery.sweepRun", "RemoveAll"},
		{"lifecycle.start.adjustOOMScore", "WriteFile"}, {"lifecycle.start.followConsole", "OpenFile"}, {"lifecycle.start.makeDisplay", "Mkdir"}, {"lifecycle.start.makeGroup", "Create"},
		{"lifecycle.start.resumeDomain", "Remove"}, {"lifecycle.teardown.finishConsole", "Remove"}, {"lifecycle.teardown.removeDisplay", "RemoveAll"},
		{"lifecycle.teardown.removeDomain", "RemoveAll"}, {"lifecycle.teardown.removeFilesystems", "Remove"}, {"lifecycle.teardown.removeGroup", "Remove"},
		{"lifecycle.teardown.removeTPM", "Remove"}, {"tpm.TPMs.Keep", "Remove"}, {"tpm.TPMs.Keep", "Rename"}, {"tpm.TPMs.Start", "OpenFile"}, {"tpm.TPMs.Start", "Remove"},
		{"tpm.TPMs.Sweep", "Remove"}, {"tpm.TPMs.makeFolders", "Mkdir"}, {"tpm.TPMs.makeFolders", "RemoveAll"}, {"tpm.makeOwned", "Mkdir"},
	} {
		all = append(all, write{place: one[0], verb: one[1], what: "the node's own file, or one by the rows above", checked: root})
	}
	return all
}

// packages are those that reach users' volumes.
func packages() []string {
	return []string{"../../imageunpack/persist", ".", "../vmstate", "../vm/save", "../vm/memorydump", "../vm/backup", "../vm/move", "../vm/hotplug", "../vm/lifecycle", "../checkpoint", "../tpm"}
}

// TestWrites: each place that may delete, replace or shorten a file of a user's volume is in the table, and each row has its
// place and its test.
func TestWrites(t *testing.T) {
	found, tests := map[string]bool{}, map[string]bool{}
	for _, dir := range packages() {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", dir, err)
		}
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			pkg := strings.TrimSuffix(file.Name.Name, "_test")
			for _, d := range file.Decls {
				f, is := d.(*ast.FuncDecl)
				if !is || f.Body == nil {
					continue
				}
				if strings.HasSuffix(name, "_test.go") {
					tests[pkg+"."+f.Name.Name] = true
					continue
				}
				for _, verb := range verbsOf(f) {
					found[pkg+"."+owner(f)+f.Name.Name+" "+verb] = true
				}
			}
		}
	}
	rows := map[string]bool{}
	for _, w := range writes() {
		key := w.place + " " + w.verb
		if rows[key] {
			t.Errorf("%s: two rows", key)
		}
		if rows[key] = true; !found[key] {
			t.Errorf("%s: the table has a place that is gone", key)
		}
		if w.what == "" || w.checked == "" || w.user && !tests[w.test] {
			t.Errorf("%s: the row is not complete, or its test %q is gone", key, w.test)
		}
	}
	for key := range found {
		if !rows[key] {
			t.Errorf("%s: the table has no row of it: what of a user's does it delete or write, and what is checked before?", key)
		}
	}
}

// verbsOf returns which calls of a function delete, replace or shorten files. A file that is opened to be read alone is not one.
func verbsOf(f *ast.FuncDecl) (all []string) {
	ast.Inspect(f.Body, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is {
			return true
		}
		sel, is := call.Fun.(*ast.SelectorExpr)
		if !is || !slices.Contains([]string{"Remove", "RemoveAll", "Rename", "Truncate", "WriteFile", "Fallocate", "OpenFile", "Create", "WriteAt", "Mkdir"}, sel.Sel.Name) {
			return true
		}
		if sel.Sel.Name == "OpenFile" && len(call.Args) > 1 && readsOnly(call.Args[1]) {
			return true
		}
		all = append(all, sel.Sel.Name)
		return true
	})
	return all
}

// readsOnly reports whether flags say O_RDONLY.
func readsOnly(flags ast.Expr) bool {
	reads := false
	ast.Inspect(flags, func(n ast.Node) bool {
		if id, is := n.(*ast.Ident); is && id.Name == "O_RDONLY" {
			reads = true
		}
		return true
	})
	return reads
}

// owner returns the type of a method's receiver with a dot; "" for a function.
func owner(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	e := f.Recv.List[0].Type
	if star, is := e.(*ast.StarExpr); is {
		e = star.X
	}
	if generic, is := e.(*ast.IndexExpr); is {
		e = generic.X
	}
	if id, is := e.(*ast.Ident); is {
		return id.Name + "."
	}
	return ""
}

// TestWritesFindsOne: the walk finds what it is for, in a function that it has not seen.
func TestWritesFindsOne(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.go")
	text := "package x\nfunc (v *vol) drop() { root.Remove(a); f, _ := os.OpenFile(n, os.O_RDONLY|os.O_EXCL, 0); os.OpenFile(n, os.O_TRUNC, 0) }"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	f := file.Decls[0].(*ast.FuncDecl)
	if got := verbsOf(f); owner(f) != "vol." || !slices.Equal(got, []string{"Remove", "OpenFile"}) {
		t.Errorf("%s %v", owner(f), got)
	}
}
