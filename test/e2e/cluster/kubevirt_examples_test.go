//go:build cluster && examples

package cluster

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
	"sigs.k8s.io/yaml"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
)

var kubevirtExamples = flag.String("kubevirt-examples", "",
	"`folder` with KubeVirt's example manifests")

// manifest is one of KubeVirt's examples, with the result of applying it.
type manifest struct {
	file, kind, name string
	says             string // what its user data prints, "" if the user data is not a script
	runs             string // why it does not run, "" if it does or if it is no VM
	refusal          string // "" if the API server accepted it
}

// machine reports whether the manifest is of a VM or an instance.
func (m *manifest) machine() bool {
	return m.kind == "VirtualMachine" || m.kind == "VirtualMachineInstance"
}

// TestKubeVirtsExamples applies each manifest of a folder unchanged, waits until the VMs run, and writes
// docs/kubevirt-examples.md. Small guests have the names of the images. The repository has no copy of
// the folder, so you must provide it. The tests of docs compare the page with what the tests of
// controller/admission refuse.
func TestKubeVirtsExamples(t *testing.T) {
	if *kubevirtExamples == "" {
		t.Fatal("missing flag: -kubevirt-examples FOLDER")
	}
	assert.NilError(t, pushKubeVirtsDisks(t.Context()))
	withNetworks(t)
	files, err := filepath.Glob(filepath.Join(*kubevirtExamples, "*.yaml"))
	assert.NilError(t, err)
	var first, machines []*manifest // first are the objects that VMs refer to
	for _, file := range files {
		m, err := readManifest(file)
		assert.NilError(t, err)
		if m.machine() {
			machines = append(machines, m)
		} else {
			first = append(first, m)
		}
	}
	for _, m := range first {
		t.Cleanup(func() { m.delete(t) })
		m.apply(t)
	}
	var all sync.WaitGroup
	places := make(chan struct{}, 3)
	for _, m := range machines {
		all.Go(func() {
			places <- struct{}{}
			m.apply(t)
			if m.refusal == "" {
				m.run(t)
				m.delete(t)
			}
			<-places
		})
	}
	all.Wait()
	writeExamples(t, append(first, machines...))
}

// pushKubeVirtsDisks pushes a small guest under the names of the examples' images.
func pushKubeVirtsDisks(ctx context.Context) error {
	disk, err := guest.TinyWithUEFI(ctx, suite.Control().GuestOptions()) // it has a driver for SATA, the bus of KubeVirt's disks by default
	if err != nil {
		return err
	}
	img, err := images.RegistryDisk(disk, images.DiskOptions{})
	if err != nil {
		return err
	}
	for _, name := range []string{"cirros", "alpine", "fedora-with-test-tooling"} {
		name = "kubevirt/" + name + "-container-disk"
		for _, tag := range []string{"-demo:devel", ":devel"} {
			if _, err := suite.Push(ctx, name+tag, img); err != nil {
				return err
			}
		}
	}
	return nil
}

func readManifest(file string) (*manifest, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var object struct {
		Kind     string
		Metadata struct{ Name string }
	}
	err = yaml.Unmarshal(text, &object)
	m := &manifest{file: file, kind: object.Kind, name: object.Metadata.Name}
	if says := regexp.MustCompile(`#!/bin/sh\s+echo '([^']+)'`).FindSubmatch(text); says != nil {
		m.says = string(says[1])
	}
	return m, err
}

// denied matches what kubectl prints before the reason.
var denied = regexp.MustCompile(`(?s)^.*exit status 1: (The \S+ "[^"]*" is invalid: *|.*denied the request: |.*(no matches for kind))`)

// unlike matches the text that differs between runs.
var unlike = regexp.MustCompile(`/var/run/netns/[^: ]+|virt-launcher-[^: ]+`)

func (m *manifest) apply(t *testing.T) {
	_, err := suite.Kubectl(t.Context(), "apply", "--server-side", "-f", m.file)
	if err == nil {
		return
	}
	m.refusal = denied.ReplaceAllString(err.Error(), "$2")
	m.refusal = regexp.MustCompile(`(?m)^(\d+ problems:\n|\s*\* )`).ReplaceAllString(m.refusal, "")
	m.refusal, _, _ = strings.Cut(m.refusal, "\nensure CRDs")
}

// run starts a VM and waits for output of its guest: what its user data prints, if it has any.
func (m *manifest) run(t *testing.T) {
	ctx := t.Context()
	if m.kind == "VirtualMachine" {
		_, err := suite.Kubectl(ctx, "patch", "vm", m.name, "--type=merge", "-p", `{"spec":{"runStrategy":"Always"}}`)
		if err != nil {
			m.runs = err.Error()
			return
		}
	}
	err := suite.WaitFor(ctx, "vmi/"+m.name, "jsonpath={.status.phase}=Running")
	if err == nil {
		err = says(ctx, m.name, m.says)
	}
	if err != nil {
		why, _ := suite.Kubectl(ctx, "get", "vmi,vm", "--field-selector=metadata.name="+m.name, "-o", "jsonpath={range .items[*]}"+
			`{.status.conditions[?(@.type=="Ready")].message}{"\n"}{.status.conditions[?(@.type=="Failure")].message}{"\n"}{end}`)
		m.runs = cmp.Or(strings.TrimSpace(unlike.ReplaceAllString(why, "…")), err.Error())
		t.Logf("%s: %v; conditions say: %s", m.file, err, why)
	}
}

func (m *manifest) delete(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if m.refusal != "" {
		return
	}
	if _, err := suite.Kubectl(ctx, "delete", "--ignore-not-found", "-f", m.file); err != nil {
		t.Error(err)
	}
}

// outcome returns the heading of the page's section that lists the manifest, "" if only its reasons do.
func (m *manifest) outcome() string {
	switch {
	case m.refusal != "":
		return ""
	case !m.machine():
		return "Accepted"
	case m.runs != "":
		return "Accepted, but does not run"
	}
	return "Runs"
}

// writeExamples writes which manifests run and which are accepted, and the reasons of the others.
func writeExamples(t *testing.T, all []*manifest) {
	t.Helper()
	top, err := checkout()
	assert.NilError(t, err)
	file := filepath.Join(top, "docs", "kubevirt-examples.md")
	text, err := os.ReadFile(file)
	assert.NilError(t, err)
	slices.SortFunc(all, func(a, b *manifest) int { return strings.Compare(a.file, b.file) })
	page, _, _ := strings.Cut(string(text), "## Runs\n")
	for _, section := range []string{"Runs", "Accepted", "Accepted, but does not run"} {
		var items strings.Builder
		for _, m := range all {
			if m.outcome() == section {
				fmt.Fprintf(&items, "- `%s` (%s)\n", filepath.Base(m.file), m.kind)
			}
		}
		if items.Len() > 0 {
			page += "## " + section + "\n\n" + items.String() + "\n"
		}
	}
	page += "## Refused\n\n"
	why := map[string][]string{} // manifests, by reason
	for _, m := range all {
		for line := range strings.Lines(m.refusal + m.runs) {
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			why[line] = append(why[line], filepath.Base(m.file))
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(why)) {
		page += wrapped("- `"+reason+"`: "+strings.Join(why[reason], ", ")) + "\n"
	}
	assert.NilError(t, os.WriteFile(file, []byte(page), 0o644))
}
