// Command cdi writes the manifests of CDI's operator, as CDI's own packages make them, to stdout: a list
// with its CRD, its permissions and its Deployment in namespace cdi. The Deployment names the images that
// package cluster pushes.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubevirt.io/containerized-data-importer/pkg/operator/resources/namespaced"
	"kubevirt.io/containerized-data-importer/pkg/operator/resources/operator"
)

// namespace is CDI's.
const namespace = "cdi"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("cdi: %d arguments; it takes one, CDI's version", len(args))
	}
	objects, err := operator.CreateOperatorResourceGroup("everything", &operator.FactoryArgs{
		Image: image("operator"),
		NamespacedArgs: namespaced.FactoryArgs{
			Namespace:              namespace,
			OperatorVersion:        args[0],
			DeployClusterResources: "true",
			Verbosity:              "1",
			PullPolicy:             string(corev1.PullIfNotPresent),
			ControllerImage:        image("controller"),
			ImporterImage:          image("importer"),
			OvirtPopulatorImage:    image("importer"),
			ClonerImage:            image("cloner"),
			APIServerImage:         image("apiserver"),
			UploadProxyImage:       image("uploadproxy"),
			UploadServerImage:      image("uploadserver"),
		},
	})
	if err != nil {
		return fmt.Errorf("make the manifests of CDI's operator: %w", err)
	}
	items := []any{&corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
	}}
	for _, object := range objects {
		items = append(items, object)
	}
	list := map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
	if err := json.NewEncoder(os.Stdout).Encode(list); err != nil {
		return fmt.Errorf("write the manifests of CDI's operator: %w", err)
	}
	return nil
}

// image names a part's image.
func image(part string) string { return "registry.example.com/cdi/cdi-" + part + ":dev" }
