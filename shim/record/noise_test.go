package record_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// TestCutAnywhere: whatever a crash or a disk made of a container's record, the other one is read, and each
// is either used or refused.
func TestCutAnywhere(t *testing.T) {
	s, root := open(t)
	if err := errors.Join(s.PutContainer(container()), s.PutSandbox(sandbox())); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(root, "containers", idB, "record.json"))
	if err != nil {
		t.Fatal(err)
	}
	whole := bytes.ReplaceAll(file, []byte(idB), []byte(idC))
	path := filepath.Join(s.ContainerDir(idC), "record.json")
	noise := rand.New(rand.NewPCG(1, 1))
	for at := range whole {
		spoilt := map[string][]byte{"cut": whole[:at]}
		if at%16 == 0 {
			spoilt["noise"] = bytes.Clone(whole)
			for i := at; i < min(len(whole), at+1+noise.IntN(512)); i++ {
				spoilt["noise"][i] = byte(noise.Uint32())
			}
		}
		for what, text := range spoilt {
			write(t, path, string(text))
			refused, err := s.Refused()
			if err != nil {
				t.Fatalf("%s at %d: %v", what, at, err)
			}
			used, err := s.Containers()
			if err != nil || len(used)+len(refused) != 2 || len(refused) == 1 && refused[0].ID != idC {
				t.Fatalf("%s at %d: %d used, %d refused, %v", what, at, len(used), len(refused), err)
			}
			if what == "cut" && at < len(whole)-2 && len(refused) != 1 { // the last bytes are a brace and a newline
				t.Fatalf("cut at %d: it is used", at)
			}
		}
	}
}

// TestSandboxCutAnywhere: the record is moved, and the other one is read.
func TestSandboxCutAnywhere(t *testing.T) {
	s, root := open(t)
	if err := s.PutSandbox(sandbox()); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(root, "sandboxes", idA+".json"))
	if err != nil {
		t.Fatal(err)
	}
	whole := bytes.ReplaceAll(file, []byte(idA), []byte(idC))
	for at := range len(whole) - 2 { // the last bytes are a brace and a newline
		write(t, filepath.Join(root, "sandboxes", idC+".json"), string(whole[:at]))
		if moved, err := s.MoveBroken(); err != nil || len(moved) != 1 || moved[0].ID != idC {
			t.Fatalf("cut at %d: %v, %v", at, moved, err)
		}
		if all, err := s.Sandboxes(); err != nil || len(all) != 1 || all[0].ID != idA {
			t.Fatalf("cut at %d: %v, %v", at, all, err)
		}
	}
}
