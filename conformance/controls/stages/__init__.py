"""How controls are audited: a few stages, each the protocols and checks that a real engine meets.

verifiers   a verification function alone, for chains or for trees
engines     a whole engine over table models, through `audit_engine`
serving     the reference engine with batches, pages and schedules: the families of checks on outputs, caches and reports
caches      a cache behind token ids, through schedules of rounds; a draft's cache; pages of a prefix cache
trees       what is built for a tree, and which path of it is kept
drafts      what drafts claim about themselves, and what a draft net is fed
"""
