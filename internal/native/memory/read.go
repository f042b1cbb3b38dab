package memory

import (
	"encoding/json"

	"github.com/tine-mcp/tine/internal/driver"
)

// Read tells what is in a graph: its entities, what was observed of each, and relations.
func Read(g *Graph, each func(driver.Item) error) error {
	item := func(kind string, value any) error {
		b, err := json.Marshal(value)
		if err != nil {
			return err
		}
		return each(driver.Item{Kind: kind, Value: b})
	}
	for it := g.entities.Iterator(); !it.Done(); {
		_, e, _ := it.Next()
		if err := item("entity", map[string]string{"name": e.Name, "entityType": e.Type}); err != nil {
			return err
		}
		for _, text := range e.Observations {
			if err := item("observation", map[string]string{"entity": e.Name, "text": text}); err != nil {
				return err
			}
		}
	}
	for it := g.relations.Iterator(); !it.Done(); {
		_, r, _ := it.Next()
		if err := item("relation", r); err != nil {
			return err
		}
	}
	return nil
}
