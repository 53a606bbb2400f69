package admission

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize is how many objects of a namespace a review reads at a time: authors decide how many there are, and each may
// have half a MiB.
const pageSize = 16

// Pages lists the objects of a namespace page by page, until look returns true or an error. Empty returns an empty list.
func Pages[L client.ObjectList](
	ctx context.Context, live client.Reader, namespace string, empty func() L, look func(L) (done bool, err error),
) error {
	for next := ""; ; {
		page := empty()
		if err := live.List(ctx, page, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(next)); err != nil {
			return err
		}
		if done, err := look(page); done || err != nil {
			return err
		}
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}
