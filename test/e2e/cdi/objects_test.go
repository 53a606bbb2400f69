//go:build cdi

package cdi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/wait"
)

type object = map[string]any

// size has room for the tiny guest's disk and a file system around it.
const size = "256Mi"

// storage is the spec of a DataVolume's PVC.
func storage(class, mode string) object {
	return object{
		"storageClassName": class, "volumeMode": mode, "accessModes": []string{"ReadWriteOnce"},
		"resources": object{"requests": object{"storage": size}},
	}
}

// dataVolume is a DataVolume that is filled at once.
func dataVolume(name, mode string, from object) object {
	return object{
		"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": object{"name": name},
		"spec": object{"source": from, "storage": storage("local", mode)},
	}
}

// vm is a VirtualMachine whose only disk is the DataVolume of its template.
func vm(name, class, mode string, from object) object {
	disk := name + "-disk"
	return object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": name},
		"spec": object{
			"runStrategy": "Always",
			"dataVolumeTemplates": []object{{
				"metadata": object{"name": disk}, "spec": object{"source": from, "storage": storage(class, mode)},
			}},
			"template": object{
				"metadata": object{"labels": object{"app": name}},
				"spec": object{
					"terminationGracePeriodSeconds": 60,
					"domain": object{
						"memory": object{"guest": "96Mi"},
						"devices": object{
							"disks":      []object{{"name": "boot", "disk": object{"bus": "virtio"}}},
							"interfaces": []object{{"name": "default", "bridge": object{}}},
						},
					},
					"networks": []object{{"name": "default", "pod": object{}}},
					"volumes":  []object{{"name": "boot", "dataVolume": object{"name": disk}}},
				},
			},
		},
	}
}

// pod is a pod of busybox, with PVCs at /NAME.
func pod(name string, pvcs []string, command ...string) object {
	var mounts, volumes []object
	for _, pvc := range pvcs {
		mounts = append(mounts, object{"name": pvc, "mountPath": "/" + pvc})
		volumes = append(volumes, object{"name": pvc, "persistentVolumeClaim": object{"claimName": pvc}})
	}
	return object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name},
		"spec": object{
			"terminationGracePeriodSeconds": 0, "restartPolicy": "Never",
			"shareProcessNamespace": true, // pause reaps what timeout(1) leaves
			"containers":            []object{{"name": "c", "image": suite.busybox, "command": command, "volumeMounts": mounts}},
			"volumes":               volumes,
		},
	}
}

// made creates an object, and deletes it when the test ends, after a look at it if that failed.
func made(t *testing.T, o object) (name string) {
	t.Helper()
	name = o["metadata"].(object)["name"].(string)
	kind := strings.ToLower(o["kind"].(string))
	removed(t, kind, name)
	assert.NilError(t, apply(t.Context(), o))
	return name
}

// removed deletes an object when the test ends.
func removed(t *testing.T, kind, name string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), wait.Patience)
		defer cancel()
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, "describe", kind, name)
			all, _ := suite.Kubectl(ctx, "get", "vm,vmi,dv,pvc,pods", "-o", "wide")
			logs, _ := suite.Kubectl(ctx, "logs", "--selector=app=containerized-data-importer", "--tail=30", "--prefix")
			own, _ := suite.Kubectl(ctx, "logs", "--namespace=cdi", "--selector=app=containerized-data-importer", "--tail=30", "--prefix")
			t.Logf("%s\n%s\n%s\n%s", about, all, logs, own)
		}
		if _, err := suite.Kubectl(ctx, "delete", kind, name, "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
}

func apply(ctx context.Context, o object) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return suite.Apply(ctx, string(text))
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return clustertest.Kubectl(t, suite.Cluster, args...)
}

// filled waits until CDI has filled a DataVolume.
func filled(t *testing.T, name string) {
	t.Helper()
	assert.NilError(t, suite.WaitFor(t.Context(), "datavolume/"+name, "jsonpath={.status.phase}=Succeeded"))
}

// answers waits until a VM's guest answers.
func answers(t *testing.T, name string) {
	t.Helper()
	wait.Success(t, "an answer of "+name, func(ctx context.Context) error {
		ip, err := suite.Kubectl(ctx, "get", "vmi", name, "-o", "jsonpath={.status.interfaces[0].ipAddress}")
		if err != nil {
			return err
		}
		if ip == "" {
			return errors.New("no address yet")
		}
		page, err := suite.Kubectl(ctx, "exec", asker, "--", "timeout", "10", "wget", "-q", "-O", "-", "http://"+ip+"/cgi-bin/info")
		if err == nil && !strings.Contains(page, "bootID") {
			err = fmt.Errorf("page: %q", page)
		}
		return err
	})
}
