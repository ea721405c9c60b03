"""The data of an audit: a sealed plan, every sample, the ledger's state. What was judged can be judged again from it alone.

    FOLDER/plan.json          the sealed plan, with its digest
    FOLDER/samples/MODE/...   JSON Lines of `conformance.samples`, gzipped, a file for each chunk of requests
    FOLDER/ledger.json        the ledgers once the audit has ended
    FOLDER/environment.json   when and with which versions it was run

Files are written beside their place and moved there, so that each is whole or absent whatever happens. An audit that was
interrupted asks its engine for what is missing and reads the rest from here: seeds follow from the numbers of the requests, so
it ends as if nothing had happened.
"""
