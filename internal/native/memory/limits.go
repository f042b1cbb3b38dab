package memory

// entities refuses to add what would go over a limit.
func (l Settings) entities(g *Graph, added []*entity) error {
	if n := int64(g.entities.Len() + len(added)); n > l.MaxEntities {
		return refuse("the graph would have %d entities, more than the %d it may have (settings.max_entities); delete some first", n, l.MaxEntities)
	}
	size := g.bytes
	for _, e := range added {
		if err := l.values(e.Name, e.Type); err != nil {
			return err
		}
		if err := l.values(e.Observations...); err != nil {
			return err
		}
		if err := l.many(e.Name, len(e.Observations)); err != nil {
			return err
		}
		size += e.size()
	}
	return l.bytes(size)
}

func (l Settings) relations(g *Graph, added []relation) error {
	if n := int64(g.relations.Len() + len(added)); n > l.MaxRelations {
		return refuse("the graph would have %d relations, more than the %d it may have (settings.max_relations); delete some first", n, l.MaxRelations)
	}
	size := g.bytes
	for _, r := range added {
		if err := l.values(r.From, r.To, r.Type); err != nil {
			return err
		}
		size += r.size()
	}
	return l.bytes(size)
}

func (l Settings) observations(d *edit, e *entity, added []string) error {
	if err := l.many(e.Name, len(e.Observations)+len(added)); err != nil {
		return err
	}
	if err := l.values(added...); err != nil {
		return err
	}
	size := d.bytes
	for _, o := range added {
		size += int64(len(o))
	}
	return l.bytes(size)
}

func (l Settings) many(name string, observations int) error {
	if int64(observations) > l.MaxObservations {
		return refuse("entity %.100q would have %d observations, more than the %d that one may have (settings.max_observations); delete some first or use another entity", name, observations, l.MaxObservations)
	}
	return nil
}

func (l Settings) values(values ...string) error {
	for _, v := range values {
		if int64(len(v)) > l.MaxValueBytes {
			return refuse("a value has %d bytes, more than the %d that one may have (settings.max_value_bytes): %.40q...", len(v), l.MaxValueBytes, v)
		}
	}
	return nil
}

func (l Settings) bytes(n int64) error {
	if n > l.MaxGraphBytes {
		return refuse("the graph would have about %d bytes, more than the %d it may have (settings.max_graph_bytes); delete some of it first", n, l.MaxGraphBytes)
	}
	return nil
}
