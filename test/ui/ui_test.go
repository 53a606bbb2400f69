//go:build ui

package ui

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"gotest.tools/v3/assert"
)

// machine creates a VM of the small guest, and deletes it when the test ends.
func machine(t *testing.T, name, strategy string) {
	t.Helper()
	removed(t, name)
	assert.NilError(t, suite.Apply(t.Context(), fmt.Sprintf(`apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: %s, labels: {kubevirt-manager.io/managed: "true"}}
spec:
  runStrategy: %s
  template:
    metadata: {labels: {kubevirt-manager.io/managed: "true"}}
    spec:
      domain:
        cpu: {cores: 1, sockets: 1, threads: 1}
        resources: {requests: {memory: 96Mi}} # the UI does not know memory.guest
        devices:
          autoattachGraphicsDevice: true
          disks: [{name: root, disk: {bus: virtio}}]
          interfaces: [{name: default, masquerade: {}}]
      networks: [{name: default, pod: {}}]
      volumes: [{name: root, containerDisk: {image: %q}}]
`, name, strategy, suite.image)))
}

func removed(t *testing.T, name string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if _, err := suite.Kubectl(ctx, "delete", "vm", name, "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
}

// row is the list's row of a VM.
func row(name string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#vmList_datatable tbody tr")].find(r => r.cells.length > 2 && r.cells[2].innerText.trim() == %q)`, name)
}

// press presses a button of a VM's menu in the list, and loads the list until the VM has a status.
func (b *browser) press(name, title, status string) {
	b.t.Helper()
	button := fmt.Sprintf(`%s?.querySelector('a[title=%q]:not(.disabled)')`, row(name), title)
	b.until(button + " != null")
	b.do(chromedp.Evaluate(button+".click()", nil))
	b.listed(name, status)
}

// listed loads the list until it shows a VM with a status.
func (b *browser) listed(name, status string) {
	b.t.Helper()
	shown := fmt.Sprintf(`%s?.cells[0].textContent.includes(%q) ?? false`, row(name), status)
	for end := time.Now().Add(patience); ; {
		var ok bool
		b.do(chromedp.Sleep(time.Second), chromedp.Evaluate(shown, &ok))
		if ok {
			return
		}
		if time.Now().After(end) {
			b.shot("failed")
			b.t.Fatalf("the list does not show %s %s", name, status)
		}
		b.click(`button[title="Refresh..."]`)
	}
}

// TestActions: the list's buttons start, pause, resume, restart and stop a VM.
func TestActions(t *testing.T) {
	const name = "buttons"
	machine(t, name, "Halted")
	b := open(t, "/")
	b.follow("/vmlist")
	b.listed(name, "stopped")
	b.press(name, "Power on...", "running")
	b.shot("running")
	b.press(name, "Pause...", "paused")
	b.press(name, "Resume...", "running")
	before, err := suite.Kubectl(t.Context(), "get", "vmi", name, "-o", "jsonpath={.metadata.uid}")
	assert.NilError(t, err)
	b.press(name, "Restart...", "")
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+name, "condition=Ready"))
	b.listed(name, "running")
	after, err := suite.Kubectl(t.Context(), "get", "vmi", name, "-o", "jsonpath={.metadata.uid}")
	assert.NilError(t, err)
	if after == before {
		t.Error("the VM did not restart")
	}
	b.press(name, "Power off...", "stopped")
	b.shot("stopped")
	assert.DeepEqual(t, b.said(), []string(nil))
}

// TestConsoles: the details of a VM show its serial console, in which one can type, and its screen.
func TestConsoles(t *testing.T) {
	const name = "consoles"
	machine(t, name, "Always")
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+name, "condition=Ready"))
	list := open(t, "/")
	list.follow("/vmlist")
	list.listed(name, "running")
	list.follow("/vmdetail/default/" + name)
	frame := func(id string) string {
		var path string
		list.until(fmt.Sprintf("document.getElementById(%q)?.contentWindow.location.pathname.startsWith('/assets/') ?? false", id))
		list.do(chromedp.Evaluate(fmt.Sprintf("document.getElementById(%q).getAttribute('src')", id), &path))
		return path
	}
	serial, screen := frame("xtermfram"), frame("vncframe")
	list.shot("details")
	list.do(chromedp.Navigate("about:blank")) // a console has one user

	console := open(t, serial)
	shows := func(line string) {
		console.until(fmt.Sprintf(`[...Array(terminal.buffer.active.length).keys()].some(
			i => terminal.buffer.active.getLine(i).translateToString().trim() == %q)`, line))
	}
	console.until("typeof socket != 'undefined' && socket.readyState == WebSocket.OPEN")
	console.do(chromedp.Evaluate(`terminal.paste("\r")`, nil))
	shows(name + ":/#") // the prompt
	console.do(chromedp.Evaluate(`terminal.paste("echo $((6*7))\r")`, nil))
	shows("42")
	console.shot("serial")

	display := open(t, screen)
	display.until(`(() => {
		const canvas = document.querySelector("canvas");
		if (canvas == null || canvas.width < 300) return false;
		const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
		return new Set(new Uint32Array(pixels.buffer)).size > 1;
	})()`)
	display.until("!document.documentElement.classList.contains('noVNC_connecting')")
	display.do(chromedp.Sleep(time.Second)) // until its message has faded
	display.shot("screen")
}

// TestPages: each page of the menu opens, and the server answers all its requests.
func TestPages(t *testing.T) {
	machine(t, "listed", "Always")
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/listed", "condition=Ready"))
	b := open(t, "/")
	var links []string
	const menu = `[...document.querySelectorAll(".nav-sidebar a[href]")]`
	b.until(menu + ".length > 9")
	b.do(chromedp.Evaluate(menu+`.map(a => a.getAttribute("href"))`, &links))
	for _, link := range links {
		b.follow(link)
		b.do(chromedp.Sleep(2 * time.Second)) // for its requests
		b.shot(strings.Trim(strings.ReplaceAll(link, "/", "-"), "-") + "-page")
	}
	t.Logf("%d pages, %d requests", len(links), len(b.answers))
	assert.DeepEqual(t, b.refused(optional), []string(nil))
	assert.DeepEqual(t, b.said(), []string(nil))
}

// optional explains requests by which the UI finds out what a cluster has: Prometheus, and the Cluster API.
// The API server answers 429 while it learns of a new kind.
func optional(a answer) bool {
	return a.status == http.StatusTooManyRequests && strings.HasPrefix(a.path, "/k8s/apis/kubevirt-manager.io/") ||
		a.status == http.StatusNotFound &&
			(strings.HasPrefix(a.path, "/api/v1/query?") || strings.HasPrefix(a.path, "/k8s/apis/cluster.x-k8s.io/"))
}

// TestCreate: the form creates a VM from an image, which CDI imports, and the VM runs.
func TestCreate(t *testing.T) {
	const name = "created"
	removed(t, name)
	assert.NilError(t, suite.Apply(t.Context(), fmt.Sprintf(`apiVersion: kubevirt-manager.io/v1
kind: Image
metadata: {name: tiny, namespace: default}
spec: {type: registry, readableName: tiny, registry: {url: "docker://%s"}}
`, suite.image)))
	b := open(t, "/")
	b.follow("/vmlist")
	// With the answer to its last request the page empties its forms.
	b.answered("/k8s/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
	b.click(`button[title="New VM..."]`)
	b.fill("newvm-namespace", "default")
	b.fill("newvm-name", name)
	b.fill("newvm-type", "custom")
	for _, field := range []string{"sockets", "cores", "threads", "memory"} {
		b.fill("newvm-cpumem-"+field, "1")
	}
	b.click(`a[title="Add new disk..."]`)
	b.fill("diskType-0", "image")
	b.offers("diskValue-0", "tiny", func() { b.fill("diskType-0", "image") })
	b.fill("diskValue-0", "tiny")
	b.fill("diskSize-0", "1")
	b.fill("diskBootOrder-0", "1")
	b.fill("diskStorageClass-0", "local")
	b.fill("diskAccessMode-0", "ReadWriteOnce")
	b.fill("diskBus-0", "virtio")
	b.click(`a[title="Add new network..."]`)
	b.fill("networkName-0", "podNetwork")
	b.fill("networkType-0", "masquerade")
	b.shot("form")
	b.click("#modal-newvm button.btn-primary")
	b.until("document.getElementById('modal-newvm') == null || document.getElementById('modal-newvm').style.display == 'none'")
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+name, "condition=Ready"))
	b.listed(name, "running")
	b.shot("list")
	assert.DeepEqual(t, b.said(), []string(nil))
}
