//go:build cluster && slow

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/node/registry"
	"github.com/nodevirt/nodevirt/test/wait"
)

// The registry that asks for a login, and the login.
const (
	loginHost    = "login.example.com"
	privateImage = loginHost + "/disks/private:1"
	kernelsImage = loginHost + "/disks/kernel:1"
	robot        = "robot"
	robotsSecret = "only-the-robot-knows"
)

// loginRegistry serves a registry that asks for a login, to the nodes, by the name [loginHost]. It has the image of a
// guest, and that of a kernel.
func loginRegistry(t *testing.T) {
	t.Helper()
	all, err := registry.Handler(t.TempDir())
	assert.NilError(t, err)
	open := httptest.NewServer(all)
	defer open.Close()
	disk, err := guest.Tiny(t.Context(), suite.Control().GuestOptions())
	assert.NilError(t, err)
	img, err := images.RegistryDisk(disk, images.DiskOptions{})
	assert.NilError(t, err)
	for ref, img := range map[string]v1.Image{privateImage: img, kernelsImage: kernelImage(t)} {
		_, err = images.Push(t.Context(), strings.Replace(ref, loginHost, open.Listener.Addr().String(), 1), img, images.PushOptions{})
		assert.NilError(t, err)
	}

	listener, err := suite.Control().Listen(t.Context(), "tcp", net.JoinHostPort(suite.ControlAddress(), "0"))
	assert.NilError(t, err)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, secret, _ := r.BasicAuth(); user != robot || secret != robotsSecret {
			w.Header().Set("WWW-Authenticate", `Basic realm="disks"`)
			http.Error(w, `{"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}`, http.StatusUnauthorized)
			return
		}
		all.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	for _, n := range suite.Nodes() {
		hosts := filepath.Join(n.Dir(), "etc", "certs.d", loginHost, "hosts.toml")
		assert.NilError(t, os.MkdirAll(filepath.Dir(hosts), 0o755))
		t.Cleanup(func() { assert.NilError(t, os.RemoveAll(filepath.Dir(hosts))) })
		assert.NilError(t, os.WriteFile(hosts, []byte("server = \"http://"+listener.Addr().String()+"\"\n"), 0o600))
	}
}

// login is a Secret with a login at the registry.
func login(t *testing.T, name, password string) string {
	t.Helper()
	auths, err := json.Marshal(object{"auths": object{loginHost: object{"username": robot, "password": password}}})
	assert.NilError(t, err)
	return made(t, object{
		"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": name}, "type": "kubernetes.io/dockerconfigjson",
		"stringData": object{".dockerconfigjson": string(auths)},
	})
}

// TestARegistryWithALogin: VMs and pods with the login of a registry boot its image, from a PVC too. Others say why
// they do not, also where the node has the image already.
func TestARegistryWithALogin(t *testing.T) {
	t.Parallel()
	loginRegistry(t)
	right, wrong := login(t, "right-login", robotsSecret), login(t, "wrong-login", "guessed")
	private := func(secret string) func(spec, domain, devices object) {
		return func(spec, _, _ object) {
			disk := object{"image": privateImage}
			if secret != "" {
				disk["imagePullSecret"] = secret
			}
			spec["volumes"] = []object{{"name": "boot", "containerDisk": disk}}
			spec["nodeSelector"] = object{"kubernetes.io/hostname": "node-1"}
		}
	}
	refusedOf := func(name string, vmi object, image, words string) {
		t.Helper()
		made(t, machine(vmi))
		wait.Success(t, "the reason of "+name, func(ctx context.Context) error {
			for _, kind := range []string{"vm", "vmi"} {
				text, err := suite.Kubectl(ctx, "describe", kind, name)
				if err != nil {
					return err
				}
				for _, want := range []string{"ImagePull", image, words} {
					if !strings.Contains(text, want) {
						return fmt.Errorf("no %q in\n%s", want, text)
					}
				}
				if strings.Contains(text, "guessed") {
					t.Fatalf("the password is in\n%s", text)
				}
			}
			return nil
		})
		status := kubectl(t, "get", "vm", name, "-o", "jsonpath={.status.printableStatus}")
		if status != "ErrImagePull" && status != "ImagePullBackOff" {
			t.Errorf("%s is %s", name, status)
		}
		kubectl(t, "delete", "vm", name)
	}
	refused := func(name, secret, words string) {
		t.Helper()
		refusedOf(name, strangersVMI(name, private(secret)), privateImage, words)
	}
	const unknown = "may require authorization"
	refused("login-none", "", unknown)
	refused("login-wrong", wrong, "401 Unauthorized")
	refused("login-missing", "no-such-login", unknown)

	addressOf(t, made(t, strangersVMI("login-right", private(right))))
	refused("login-of-others", "", unknown) // the node has the image now

	const kernel = "login-kernel"
	refusedOf(kernel, ofKernel(kernel, object{"image": kernelsImage}), kernelsImage, unknown)
	made(t, ofKernel(kernel, object{"image": kernelsImage, "imagePullSecret": right}))
	assert.NilError(t, says(t.Context(), kernel, "nodevirt guest: up"))

	pod := vmPod("login-pod", privateImage)
	pod["spec"].(object)["imagePullSecrets"] = []object{{"name": right}}
	answer(t, field(t, ready(t, pod), ".status.podIP"))
	copiesWithALogin(t, right)
}

// copiesWithALogin boots copies of the image on PVCs, which a VM's own login pulls, and that of its service account.
func copiesWithALogin(t *testing.T, secret string) {
	t.Helper()
	const own, templated = "login-own", "login-template"
	localPVC(t, own, "Block", loopfs.Device(t, 96<<20))
	vmi := onPVC(own, own)
	vmi["metadata"].(object)["annotations"] = object{vmspec.AnnotationDiskOrigin: "boot=image"}
	spec := vmi["spec"].(object)
	spec["volumes"] = append(spec["volumes"].([]object),
		object{"name": "image", "containerDisk": object{"image": privateImage, "imagePullSecret": secret}})
	made(t, vmi)
	write(t, addressOf(t, own), "kept")
	kubectl(t, "delete", "vmi", own) // before the PVC

	made(t, object{
		"apiVersion": "v1", "kind": "ServiceAccount", "metadata": object{"name": "puller"}, "imagePullSecrets": []object{{"name": secret}},
	})
	class := localVolume(t, templated, "Block", loopfs.Device(t, 96<<20), "96Mi")
	vm := machine(strangersVMI(templated, func(spec, _, _ object) {
		spec["serviceAccountName"] = "puller"
		spec["volumes"] = []object{{"name": "boot", "dataVolume": object{"name": templated}}}
	}))
	vm["spec"].(object)["dataVolumeTemplates"] = []object{{"metadata": object{"name": templated}, "spec": object{
		"source": object{"registry": object{"url": "docker://" + privateImage}},
		"storage": object{
			"storageClassName": class, "volumeMode": "Block", "accessModes": []string{"ReadWriteOnce"},
			"resources": object{"requests": object{"storage": "96Mi"}},
		},
	}}}
	made(t, vm)
	write(t, addressOf(t, templated), "kept")
	kubectl(t, "delete", "vm", templated)
	kubectl(t, "wait", "pvc/"+templated, "--for=delete", "--timeout=120s") // before its volume
}
