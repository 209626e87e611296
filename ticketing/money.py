"""Money is a whole number of minor units and an ISO 4217 code. Nothing here is ever a float."""

from typing import Any

# ISO 4217 list one: the currencies a person can pay with (no funds codes, metals or test codes).
# A code that is not here is refused when an event is created, so money of unknown scale never
# enters the database.
CURRENCIES = frozenset(
    """
    AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN
    BZD CAD CDF CHF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS
    GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW
    KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD
    NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD
    SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VED
    VES VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG
    """.split()
)

# ISO 4217's minor units; all other currencies have two digits.
_WITHOUT_DIGITS = frozenset(
    "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF".split()
)
_WITH_THREE_DIGITS = frozenset("BHD IQD JOD KWD LYD OMR TND".split())

# One seat costs at most this many minor units: 80,000 seats of it still fit a 64-bit integer with
# room to spare, and no real seat comes near.
PRICE_MAX = 1_000_000_000


def money(amount: int, currency: str) -> dict[str, Any]:
    """Money as the API writes it."""
    return {"amount": amount, "currency": currency}


def minor_digits(currency: str) -> int:
    """How many digits of an amount in the minor unit come after the decimal mark."""
    if currency in _WITHOUT_DIGITS:
        return 0
    return 3 if currency in _WITH_THREE_DIGITS else 2
