package main

import (
	"context"
	"fmt"
)

// table is one that grows with events: its rows are copied until there are enough, each with values of its own where they must differ.
type table struct{ name, keys string }

// tables are in an order in which what is referred to is there.
func tables() []table {
	return []table{
		{"poller.events", `'id', r.id + g * 1000000, 'delivery_id', left(r.delivery_id, 17) || lpad(to_hex(g), 8, '0'), 'natural_key', r.natural_key || g`},
		{"dispatcher.deliveries", `'delivery_id', left(r.delivery_id, 17) || lpad(to_hex(g), 8, '0')`},
		{"dispatcher.events", `'seq', r.seq + g * 1000000, 'delivery_id', left(r.delivery_id, 17) || lpad(to_hex(g), 8, '0')`},
	}
}

// sizes says how large the tables are that grow with events, with their indexes, and what that is for 10,000 events.
func (m *measuring) sizes(ctx context.Context) error {
	if _, err := m.Run(ctx, "down", "--keep-database"); err != nil { // nobody looks at what is copied
		return err
	}
	have := m.items * (1 + m.events)
	copies := max(m.rows/have, 1)
	bytes := map[string]int64{}
	for _, t := range tables() {
		if _, err := m.db.Exec(ctx, fmt.Sprintf(`insert into %[1]s overriding system value
			select (jsonb_populate_record(r, jsonb_build_object(%[2]s))).* from %[1]s r, generate_series(1, $1) g`, t.name, t.keys), copies-1); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if _, err := m.db.Exec(ctx, "vacuum (full, analyze) "+t.name); err != nil {
			return err
		}
		var heap, indexes, rows int64
		if err := m.db.QueryRow(ctx, fmt.Sprintf(`select pg_table_size('%[1]s'), pg_indexes_size('%[1]s'), count(*) from %[1]s`, t.name)).
			Scan(&heap, &indexes, &rows); err != nil {
			return err
		}
		bytes[t.name] = heap + indexes
		m.tell("postgres table=%s rows=%d bytes_each_row=%d indexes_each_row=%d", t.name, rows, heap/rows, indexes/rows)
	}
	var all int64
	for _, n := range bytes {
		all += n
	}
	m.tell("postgres mib_each_10000_events=%.1f", float64(all)/float64(copies*have)*10_000/(1<<20))
	return m.perItem(ctx)
}

// perItem says what a work item takes that was ever seen, besides its events: its rows, without their indexes.
func (m *measuring) perItem(ctx context.Context) error {
	for _, name := range []string{"poller.items", "dispatcher.sessions", "dispatcher.leases"} {
		var each float64
		if err := m.db.QueryRow(ctx, "select avg(pg_column_size(r)) from "+name+" r").Scan(&each); err != nil {
			return err
		}
		m.tell("postgres table=%s bytes_each_item=%.0f", name, each)
	}
	return nil
}
